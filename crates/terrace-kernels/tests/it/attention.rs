use crate::oracle::{Random, attend, row};
use proptest::prelude::*;
use terrace_kernels::attention::{Call, Mask, Plan, Rows, Shape};
use terrace_kernels::{CacheType, Isa, f16_to_f32, f32_to_f16};

/// Which positions tokens see.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Hidden {
    /// All, without a mask.
    Nothing,
    /// Those up to their own, the last tokens of the cache.
    Future,
    /// The same, and all but the last so many.
    Window(usize),
    /// A random half, and for some tokens all.
    Random,
}

#[derive(Clone, Copy, Debug)]
pub struct Case {
    shape: Shape,
    hidden: Hidden,
    mask_heads: usize,
    max_bias: f32,
    softcap: f32,
    sinks: bool,
    /// Size of the queries, which makes the softmax flat or sharp.
    sharpness: f32,
    seed: u64,
}

/// A case's buffers. Heads of a position are side by side, as in caches.
struct Data {
    case: Case,
    queries: Vec<f32>,
    keys: Vec<u8>,
    values: Vec<u8>,
    key_values: Vec<Vec<f64>>,
    value_values: Vec<Vec<f64>>,
    mask: Vec<u16>,
    sinks: Vec<f32>,
}

impl Data {
    fn new(case: Case) -> Self {
        let Shape { tokens, heads, kv_heads, streams, kv_streams, positions, .. } = case.shape;
        let mut random = Random(case.seed);
        let queries = (0..streams * heads * tokens * case.shape.key_length)
            .map(|_| random.float() * case.sharpness)
            .collect();
        let rows = kv_streams * positions * kv_heads;
        let mut cached = |ty, n| -> (Vec<u8>, Vec<Vec<f64>>) {
            let (bytes, values): (Vec<_>, Vec<_>) = (0..rows).map(|_| row(ty, n, &mut random)).unzip();
            (bytes.concat(), values)
        };
        let (keys, key_values) = cached(case.shape.keys, case.shape.key_length);
        let (values, value_values) = cached(case.shape.values, case.shape.value_length);
        let mut mask = Vec::new();
        for _ in 0..streams * case.mask_heads {
            for token in 0..tokens {
                let own = positions.saturating_sub(tokens) + token;
                let all = random.below(4) == 0;
                for position in 0..positions {
                    let hides = match case.hidden {
                        Hidden::Nothing => false,
                        Hidden::Future => position > own,
                        Hidden::Window(n) => position > own || position + n <= own,
                        Hidden::Random => all || random.below(2) == 0,
                    };
                    mask.push(if hides {
                        0xfc00
                    } else {
                        f32_to_f16(-(own.abs_diff(position) as f32) / 16.0)
                    });
                }
            }
        }
        let sinks = (0..heads).map(|_| random.float() * 3.0).collect();
        Self { case, queries, keys, values, key_values, value_values, mask, sinks }
    }

    /// The call for tokens `first` and so many after it.
    fn call(&self, first: usize, out: &mut [f32]) -> Call {
        let Shape { tokens, heads, kv_heads, positions, key_length, value_length, .. } = self.case.shape;
        let row = key_length * 4;
        let cached = |at: &Vec<u8>, bytes: usize| Rows {
            at: at.as_ptr(),
            position: kv_heads * bytes,
            head: bytes,
            stream: positions * kv_heads * bytes,
        };
        Call {
            // Queries are permuted: heads of a token are not side by side.
            queries: Rows {
                at: self.queries[first * key_length..].as_ptr().cast(),
                position: row,
                head: tokens * row,
                stream: heads * tokens * row,
            },
            keys: cached(&self.keys, self.case.shape.keys.row_bytes(key_length)),
            values: cached(&self.values, self.case.shape.values.row_bytes(value_length)),
            mask: (self.case.hidden != Hidden::Nothing).then(|| Mask {
                rows: Rows {
                    at: self.mask[first * positions..].as_ptr().cast(),
                    position: positions * 2,
                    head: tokens * positions * 2,
                    stream: self.case.mask_heads * tokens * positions * 2,
                },
                heads: self.case.mask_heads,
                streams: self.case.shape.streams,
            }),
            sinks: self.case.sinks.then_some(self.sinks.as_ptr()),
            out: Rows {
                at: out[first * heads * value_length..].as_mut_ptr().cast(),
                position: heads * value_length * 4,
                head: value_length * 4,
                stream: tokens * heads * value_length * 4,
            },
            scale: 1.0 / (key_length as f32).sqrt(),
            max_bias: self.case.max_bias,
            softcap: self.case.softcap,
        }
    }

    fn out_len(&self) -> usize {
        let shape = self.case.shape;
        shape.streams * shape.tokens * shape.heads * shape.value_length
    }

    /// What the definition says; if keys are multiplied as bytes, with queries as blocks of these.
    fn expected(&self, bytes: bool) -> Vec<f64> {
        let rounded: Vec<f32>;
        let mut queries = &self.queries;
        if bytes {
            rounded = crate::matmul::rounded(queries, 32).into_iter().map(|x| x as f32).collect();
            queries = &rounded;
        }
        let Shape { tokens, heads, kv_heads, streams, kv_streams, positions, key_length, .. } =
            self.case.shape;
        let mut out = Vec::new();
        for stream in 0..streams {
            for token in 0..tokens {
                for head in 0..heads {
                    let at = ((stream * heads + head) * tokens + token) * key_length;
                    let kv_head = head / (heads / kv_heads);
                    let kv_stream = stream / (streams / kv_streams);
                    let rows = |of: &'_ [Vec<f64>]| -> Vec<usize> {
                        assert_eq!(of.len(), kv_streams * positions * kv_heads);
                        (0..positions).map(|p| (kv_stream * positions + p) * kv_heads + kv_head).collect()
                    };
                    let keys: Vec<&[f64]> =
                        rows(&self.key_values).into_iter().map(|i| &self.key_values[i][..]).collect();
                    let values: Vec<&[f64]> =
                        rows(&self.value_values).into_iter().map(|i| &self.value_values[i][..]).collect();
                    let slope = slope(self.case.max_bias, head, heads);
                    let added: Vec<f64> = (0..positions)
                        .map(|position| {
                            if self.case.hidden == Hidden::Nothing {
                                return 0.0;
                            }
                            let row = (stream * self.case.mask_heads + head % self.case.mask_heads) * tokens
                                + token;
                            slope * f64::from(f16_to_f32(self.mask[row * positions + position]))
                        })
                        .collect();
                    out.extend(attend(
                        &queries[at..at + key_length],
                        &keys,
                        &values,
                        &added,
                        (1.0 / (key_length as f64).sqrt(), f64::from(self.case.softcap)),
                        self.case.sinks.then(|| f64::from(self.sinks[head])),
                    ));
                }
            }
        }
        out
    }
}

fn slope(max_bias: f32, head: usize, heads: usize) -> f64 {
    if max_bias <= 0.0 {
        return 1.0;
    }
    let power = 2f64.powi(heads.ilog2() as i32);
    let (m0, m1) = (2f64.powf(-f64::from(max_bias) / power), 2f64.powf(-f64::from(max_bias) / 2.0 / power));
    let h = head as f64;
    if h < power { m0.powf(h + 1.0) } else { m1.powf(2.0 * (h - power) + 1.0) }
}

/// Memory aligned to 64 bytes.
fn aligned(bytes: usize) -> (Vec<u8>, usize) {
    // Not zeros: nothing may depend on what is there.
    let memory = vec![0xff; bytes + 64];
    let offset = memory.as_ptr().align_offset(64);
    (memory, offset)
}

/// Runs a call with so many threads, items in an order of their own.
fn run(shape: Shape, call: &Call, threads: usize, isa: Isa) {
    let plan = Plan::new(shape, threads, isa).unwrap();
    let (mut shared, offset) = aligned(plan.shared_bytes());
    let shared = shared[offset..].as_mut_ptr() as usize;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let (mut scratch, offset) = aligned(plan.scratch_bytes());
                let scratch = scratch[offset..].as_mut_ptr();
                for item in (0..plan.items()).rev().skip(thread).step_by(threads) {
                    // SAFETY: the buffers have the sizes of the shape and the plan.
                    unsafe { plan.run(call, item, scratch, shared as *mut u8) };
                }
            });
        }
    });
    for merge in 0..plan.merges() {
        // SAFETY: as above.
        unsafe { plan.merge(call, merge, shared as *mut u8) };
    }
}

fn compute(data: &Data, threads: usize, isa: Isa) -> Vec<f32> {
    let mut out = vec![f32::NAN; data.out_len()];
    let call = data.call(0, &mut out);
    run(data.case.shape, &call, threads, isa);
    out
}

fn bits(rows: &[f32]) -> Vec<u32> {
    rows.iter().map(|x| x.to_bits()).collect()
}

/// Every instruction set computes what the definition says, and the same bits whatever is computed together.
fn check(case: Case) {
    check_with(case, Isa::available());
}

pub fn check_with(case: Case, isas: &[Isa]) {
    let data = Data::new(case);
    for &isa in isas {
        let out = compute(&data, 1, isa);
        let expected = data.expected(isa.has_vnni() && case.shape.keys.is_quantised());
        // Weights are rounded to 16 bits where values are multiplied as bytes: 64 times 2^-16 of a value at worst.
        let rounded = isa.has_vnni() && case.shape.values.is_quantised();
        let tolerance = 1e-5 * (1.0 + f64::from(case.sharpness)) + if rounded { 1.5e-4 } else { 0.0 };
        for (i, (&ours, &expected)) in out.iter().zip(&expected).enumerate() {
            let error = (f64::from(ours) - expected).abs();
            assert!(error < tolerance, "{isa:?} {case:?}: value {i} is {ours}, not {expected}");
        }
        for threads in [2, 5, 1000] {
            let plan = Plan::new(case.shape, threads, isa).unwrap();
            let again = if plan.items() < threads {
                compute_with(&data, plan)
            } else {
                compute(&data, threads.min(5), isa)
            };
            assert_eq!(bits(&again), bits(&out), "{isa:?}, {threads} threads, {case:?}");
        }
        if case.shape.streams == 1 {
            let mut alone = vec![f32::NAN; out.len()];
            for token in 0..case.shape.tokens {
                let call = data.call(token, &mut alone);
                run(Shape { tokens: 1, ..case.shape }, &call, 1 + token % 3, isa);
            }
            assert_eq!(bits(&alone), bits(&out), "{isa:?}, tokens alone, {case:?}");
        }
    }
}

/// Runs a plan for many threads on one.
fn compute_with(data: &Data, plan: Plan) -> Vec<f32> {
    let mut out = vec![f32::NAN; data.out_len()];
    let call = data.call(0, &mut out);
    let (mut shared, offset) = aligned(plan.shared_bytes());
    let shared = shared[offset..].as_mut_ptr();
    let (mut scratch, offset) = aligned(plan.scratch_bytes());
    let scratch = scratch[offset..].as_mut_ptr();
    // SAFETY: the buffers have the sizes of the shape and the plan.
    unsafe {
        for item in 0..plan.items() {
            plan.run(&call, item, scratch, shared);
        }
        for merge in 0..plan.merges() {
            plan.merge(&call, merge, shared);
        }
    }
    out
}

pub fn shape(
    tokens: usize,
    group: usize,
    kv_heads: usize,
    positions: usize,
    length: usize,
    ty: CacheType,
) -> Shape {
    Shape::of_one(tokens, group * kv_heads, kv_heads, positions, length, ty)
}

pub fn plain(shape: Shape) -> Case {
    Case {
        shape,
        hidden: Hidden::Future,
        mask_heads: 1,
        max_bias: 0.0,
        softcap: 0.0,
        sinks: false,
        sharpness: 4.0,
        seed: 1,
    }
}

#[test]
fn every_type_of_keys_with_every_type_of_values() {
    for keys in CacheType::ALL {
        for values in CacheType::ALL {
            check(plain(Shape { keys, values, ..shape(3, 4, 2, 300, 64, keys) }));
        }
    }
    // With as many heads for each key as tiles of AMX are used for, lengths that are no whole chunks of these.
    for keys in [CacheType::F16, CacheType::Bf16] {
        for values in [CacheType::F16, CacheType::Bf16] {
            let lengths = Shape { key_length: 96, value_length: 80, ..shape(3, 9, 2, 300, 64, keys) };
            check(plain(Shape { values, ..lengths }));
        }
    }
}

#[test]
fn common_models() {
    for ty in [CacheType::F16, CacheType::Q8_0] {
        for case in
            [shape(1, 8, 4, 1000, 128, ty), shape(20, 8, 2, 600, 128, ty), shape(2, 4, 8, 520, 128, ty)]
        {
            check(plain(case));
        }
        // Compressed keys, the first of which are the values as well.
        check(plain(Shape { value_length: 512, ..shape(3, 16, 1, 400, 576, ty) }));
    }
}

/// Tiles of AMX, emulated where a machine has none: one token and several, a tile of positions that is not whole.
#[test]
fn tiles_on_every_machine() {
    let isas: Vec<Isa> = crate::emulated::available().into_iter().filter(|&isa| isa == Isa::Amx).collect();
    for (keys, values) in [(CacheType::F16, CacheType::Bf16), (CacheType::Bf16, CacheType::F16)] {
        check_with(plain(Shape { values, ..shape(3, 8, 1, 81, 32, keys) }), &isas);
    }
}

/// Values of bytes have the bits of vectors with tiles too: groups of rows that are whole, not whole, and not seen.
#[test]
fn tiles_of_bytes_have_the_bits_of_vectors() {
    let isas = crate::emulated::available();
    if !isas.contains(&Isa::Amx) {
        return;
    }
    for values in CacheType::ALL.into_iter().filter(|ty| ty.is_quantised()) {
        for (tokens, positions, length) in [(5, 81, 32), (16, 64, 64), (17, 130, 96)] {
            for hidden in [Hidden::Nothing, Hidden::Future, Hidden::Window(40)] {
                let shape = Shape { values, ..shape(tokens, 4, 1, positions, length, CacheType::Q8_0) };
                let data = Data::new(Case { hidden, ..plain(shape) });
                let [vectors, tiles] = [Isa::Avx512Bf16, Isa::Amx].map(|isa| bits(&compute(&data, 1, isa)));
                assert_eq!(tiles, vectors, "{:?}", data.case);
            }
        }
    }
}

#[test]
fn windows_sinks_soft_caps_and_slopes() {
    for shape in [shape(5, 4, 3, 700, 64, CacheType::F16), shape(5, 8, 2, 700, 64, CacheType::F16)] {
        for hidden in
            [Hidden::Nothing, Hidden::Future, Hidden::Window(128), Hidden::Window(1), Hidden::Random]
        {
            for (max_bias, softcap, sinks) in [(0.0, 30.0, true), (8.0, 0.0, false), (0.0, 0.0, true)] {
                check(Case { hidden, max_bias, softcap, sinks, ..plain(shape) });
            }
        }
    }
}

#[test]
fn streams_with_masks_of_their_own() {
    for group in [2, 10] {
        let shape = Shape { streams: 4, kv_streams: 2, ..shape(3, group, 2, 290, 64, CacheType::Bf16) };
        check(Case { mask_heads: 2 * group, hidden: Hidden::Random, ..plain(shape) });
    }
}

/// Positions that nobody sees may hold anything; rows that see nothing are zero.
#[test]
fn what_is_hidden_has_no_influence() {
    for group in [4, 8] {
        hidden_positions(group);
    }
}

fn hidden_positions(group: usize) {
    let shape = shape(2, group, 1, 640, 64, CacheType::F16);
    let mut data = Data::new(plain(shape));
    data.mask[..256].fill(0xfc00);
    data.mask[640..][..256].fill(0xfc00);
    for &isa in Isa::available() {
        let before = compute(&data, 1, isa);
        let bytes = 256 * 128;
        let (keys, values) = (data.keys[..bytes].to_vec(), data.values[..bytes].to_vec());
        data.keys[..bytes].fill(0xff);
        data.values[..bytes].fill(0xff);
        assert_eq!(bits(&compute(&data, 3, isa)), bits(&before), "{isa:?}");
        data.keys[..bytes].copy_from_slice(&keys);
        data.values[..bytes].copy_from_slice(&values);
    }
    data.mask.fill(0xfc00);
    for &isa in Isa::available() {
        assert!(compute(&data, 2, isa).iter().all(|&x| x == 0.0), "{isa:?}");
    }
}

/// A key that is hidden from some rows of a tile alone.
#[test]
fn a_hidden_key_that_is_no_number_has_no_influence() {
    for group in [4, 8] {
        hidden_key(group);
    }
}

fn hidden_key(group: usize) {
    let mut data = Data::new(plain(shape(1, group, 1, 100, 64, CacheType::F16)));
    data.mask[7] = 0xfc00;
    for &isa in Isa::available() {
        let key = data.keys[7 * 128..8 * 128].to_vec();
        let before = compute(&data, 1, isa);
        data.keys[7 * 128..8 * 128].fill(0xff);
        assert_eq!(bits(&compute(&data, 1, isa)), bits(&before), "{isa:?}");
        data.keys[7 * 128..8 * 128].copy_from_slice(&key);
    }
}

/// Blocks of a hidden value may be as large as they can; a scale that is not finite shows where it is seen.
#[test]
fn scales_of_hidden_values_have_no_influence_and_those_that_are_not_finite_show() {
    for ty in CacheType::ALL.into_iter().filter(|ty| ty.is_quantised()) {
        let mut data = Data::new(plain(shape(1, 4, 1, 100, 64, ty)));
        data.mask[7] = 0xfc00;
        let row = ty.row_bytes(64);
        for &isa in Isa::available() {
            let before = compute(&data, 1, isa);
            let hidden = data.values[7 * row..8 * row].to_vec();
            data.values[7 * row..8 * row].fill(0x7b);
            assert_eq!(bits(&compute(&data, 1, isa)), bits(&before), "{isa:?} {ty:?}");
            data.values[7 * row..8 * row].copy_from_slice(&hidden);
            for scale in [0x7c00u16, 0xfc00, 0x7e00] {
                let seen = data.values[8 * row..][..2].to_vec();
                data.values[8 * row..][..2].copy_from_slice(&scale.to_le_bytes());
                let out = compute(&data, 1, isa);
                assert!(out[..32].iter().any(|x| !x.is_finite()), "{isa:?} {ty:?} {scale:x}");
                data.values[8 * row..][..2].copy_from_slice(&seen);
            }
        }
    }
}

#[test]
fn bytes_that_are_no_numbers_do_no_harm() {
    for ty in CacheType::ALL {
        for (fill, group) in
            [0x00, 0x7c, 0x7f, 0x80, 0xff].into_iter().flat_map(|fill| [(fill, 3), (fill, 8)])
        {
            let mut data = Data::new(plain(shape(3, group, 1, 130, 32, ty)));
            let n = data.keys.len();
            data.keys[..n / 2].fill(fill);
            data.values[n / 4..].fill(fill);
            for &isa in Isa::available() {
                let out = compute(&data, 2, isa);
                assert_eq!(out.len(), data.out_len());
            }
        }
    }
}

#[test]
fn shapes_without_a_kernel_are_refused() {
    let good = shape(1, 4, 2, 10, 64, CacheType::Q8_0);
    assert!(Plan::new(good, 1, Isa::Scalar).is_ok());
    for bad in [
        Shape { key_length: 48, ..good },
        Shape { heads: 3, ..good },
        Shape { positions: 0, ..good },
        Shape { streams: 3, kv_streams: 2, ..good },
    ] {
        assert!(Plan::new(bad, 1, Isa::Scalar).is_err(), "{bad:?}");
    }
}

fn any_case() -> impl Strategy<Value = Case> {
    let ty = || prop::sample::select(CacheType::ALL.to_vec());
    let hidden = prop_oneof![
        Just(Hidden::Nothing),
        Just(Hidden::Future),
        (1usize..200).prop_map(Hidden::Window),
        Just(Hidden::Random)
    ];
    let sizes =
        (1usize..12, 1usize..=16, 1usize..4, 1usize..600, 1usize..=18, 1usize..=16, 0usize..32, 0usize..32);
    let rest =
        (ty(), ty(), hidden, any::<bool>(), prop::sample::select(vec![0.0f32, 4.0, 8.0]), any::<bool>());
    (sizes, rest, any::<bool>(), any::<u64>()).prop_map(|(sizes, rest, capped, seed)| {
        let (tokens, group, kv_heads, positions, key_blocks, value_blocks, key_less, value_less) = sizes;
        let (keys, values, hidden, mask_per_head, max_bias, sinks) = rest;
        let length = |ty: CacheType, blocks: usize, less: usize| {
            if ty.is_quantised() { blocks * 32 } else { blocks * 32 - less }
        };
        let heads = group * kv_heads;
        Case {
            shape: Shape {
                tokens,
                heads,
                kv_heads,
                streams: 1,
                kv_streams: 1,
                positions,
                key_length: length(keys, key_blocks, key_less),
                value_length: length(values, value_blocks, value_less),
                keys,
                values,
            },
            hidden,
            mask_heads: if mask_per_head { heads } else { 1 },
            max_bias,
            softcap: if capped { 20.0 } else { 0.0 },
            sinks,
            sharpness: 0.5 + (seed % 8) as f32,
            seed,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_shape(case in any_case()) {
        check(case);
    }
}
