//! Kernels over blocks of arbitrary bytes, scales that are no numbers or infinite included: a result does not depend on
//! what is computed beside it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use terrace_kernels::attention::{Call, Plan, Rows, Shape};
use terrace_kernels::matmul::{Column, Product};
use terrace_kernels::{CacheType, Isa, WeightType};

/// Rows of weights, more than a panel.
const ROWS: usize = 35;
/// Rows of activations.
const COLUMNS: usize = 9;
const HEADS: usize = 4;
const TOKENS: usize = 5;

#[derive(Clone)]
#[repr(C, align(64))]
struct CacheLine([u8; 64]);

fn lines(bytes: usize) -> Vec<CacheLine> {
    vec![CacheLine([0; 64]); bytes.div_ceil(64) + 1]
}

fuzz_target!(|data: &[u8]| {
    let [which, of_isa, bytes @ ..] = data else { return };
    if bytes.is_empty() {
        return;
    }
    let isas = Isa::available();
    let isa = isas[usize::from(*of_isa) % isas.len()];
    let which = usize::from(*which);
    match WeightType::ALL.get(which % (WeightType::ALL.len() + CacheType::ALL.len())) {
        Some(ty) => product(*ty, isa, bytes),
        None => attention(CacheType::ALL[which % CacheType::ALL.len()], isa, bytes),
    }
});

/// The input again and again.
fn repeated(bytes: &[u8], len: usize) -> Vec<u8> {
    bytes.iter().copied().cycle().take(len).collect()
}

/// Numbers from the input, small ones.
fn floats(bytes: &[u8], len: usize) -> Vec<f32> {
    repeated(bytes, len)
        .into_iter()
        .zip(0u8..=255)
        .map(|(byte, i)| f32::from(byte ^ i) / 64.0 - 2.0)
        .cycle()
        .take(len)
        .collect()
}

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

fn product(ty: WeightType, isa: Isa, bytes: &[u8]) {
    let length = 2 * ty.block();
    let Some(product) = Product::new(ty, length, isa) else { return };
    let stride = ty.row_bytes(length);
    let weights = repeated(bytes, stride * ROWS);
    let activations = floats(bytes, length * COLUMNS);
    let row = product.activation_bytes();
    let mut inputs = lines(row * COLUMNS);
    let mut scratch = lines(Product::scratch_bytes());
    let at = inputs.as_mut_ptr().cast::<u8>();
    let compute = |columns: std::ops::Range<usize>, rows: std::ops::Range<usize>, scratch: *mut CacheLine| {
        let mut outs = vec![0.0f32; ROWS * COLUMNS];
        let to = outs.as_mut_ptr();
        let columns: Vec<Column> = columns
            // SAFETY: within the buffers, which have room for all columns.
            .map(|column| unsafe { Column { input: at.add(column * row), out: to.add(column * ROWS) } })
            .collect();
        // SAFETY: the buffers have the product's sizes.
        unsafe { product.run(weights.as_ptr(), stride, rows, &columns, scratch.cast()) };
        outs
    };
    for column in 0..COLUMNS {
        // SAFETY: the buffers have the product's sizes.
        unsafe { product.quantise(activations[column * length..].as_ptr(), at.add(column * row)) };
    }
    let all = compute(0..COLUMNS, 0..ROWS, scratch.as_mut_ptr());
    for column in [0, COLUMNS - 1] {
        let alone = compute(column..column + 1, 0..ROWS, scratch.as_mut_ptr());
        let of = |outs: &[f32]| outs[column * ROWS..][..ROWS].to_vec();
        assert!(of(&alone).iter().zip(of(&all)).all(|(a, b)| same(*a, b)), "{ty:?} with {isa:?}");
    }
    let part = compute(0..COLUMNS, 0..7, scratch.as_mut_ptr());
    assert!(
        (0..COLUMNS * ROWS).filter(|i| i % ROWS < 7).all(|i| same(part[i], all[i])),
        "{ty:?} with {isa:?}"
    );
}

fn attention(ty: CacheType, isa: Isa, bytes: &[u8]) {
    let length = 64;
    let positions = 1 + bytes.len() % 700;
    let row = ty.row_bytes(length);
    let keys = repeated(bytes, row * positions);
    let values = repeated(&bytes[bytes.len() / 2..], row * positions);
    let queries = floats(bytes, length * HEADS * TOKENS);
    let compute = |tokens: std::ops::Range<usize>, threads: usize| {
        let shape = Shape::of_one(tokens.len(), HEADS, 1, positions, length, ty);
        let plan = Plan::new(shape, threads, isa).expect("whole blocks");
        let mut out = vec![0.0f32; length * HEADS * tokens.len()];
        let (mut scratch, mut shared) = (lines(plan.scratch_bytes()), lines(plan.shared_bytes()));
        let (head, token) = (length * 4, length * HEADS * 4);
        let rows = |at: *const u8| Rows { at, position: row, head: 0, stream: 0 };
        let first = queries[tokens.start * length * HEADS..].as_ptr();
        let call = Call {
            queries: Rows { at: first.cast(), position: token, head, stream: 0 },
            keys: rows(keys.as_ptr()),
            values: rows(values.as_ptr()),
            mask: None,
            sinks: None,
            out: Rows { at: out.as_mut_ptr().cast(), position: token, head, stream: 0 },
            scale: 0.125,
            max_bias: 0.0,
            softcap: 0.0,
        };
        // SAFETY: the buffers have the sizes of the shape and the plan.
        unsafe {
            for item in 0..plan.items() {
                plan.run(&call, item, scratch.as_mut_ptr().cast(), shared.as_mut_ptr().cast());
            }
            for merge in 0..plan.merges() {
                plan.merge(&call, merge, shared.as_mut_ptr().cast());
            }
        }
        out
    };
    let all = compute(0..TOKENS, 1);
    for token in [0, TOKENS - 1] {
        let alone = compute(token..token + 1, 4);
        let of_token = &all[token * length * HEADS..][..length * HEADS];
        assert!(alone.iter().zip(of_token).all(|(a, b)| same(*a, *b)), "{ty:?} with {isa:?}");
    }
}
