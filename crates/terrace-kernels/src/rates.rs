//! Speed of kernels on this machine, with meaningless numbers from memory that no cache holds.

use crate::attention::{Call, Plan, Rows, Shape, Unsupported};
use crate::matmul::{Column, Interleaving, Product};
use crate::memory::lines;
use crate::peak::{Arithmetic, multiply};
use crate::{CacheType, Isa, WeightType};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Bytes of keys and values that are gone through in turns: several times the caches.
const COLD: usize = 192 << 20;

/// A buffer that threads share, each using its own part.
#[derive(Clone, Copy)]
struct Shared<T>(*mut T);

// SAFETY: `Shared` is used by the functions below only, which divide what it points to.
unsafe impl<T> Sync for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Send for Shared<T> {}

impl<T> Shared<T> {
    const fn at(&self) -> *mut T {
        self.0
    }
}

/// The shortest time in seconds of `work`, which is repeated for `time`, and twice at least.
fn shortest(time: Duration, mut work: impl FnMut()) -> f64 {
    let (began, mut best, mut runs) = (Instant::now(), f64::INFINITY, 0);
    while runs < 2 || began.elapsed() < time {
        let before = Instant::now();
        work();
        best = best.min(before.elapsed().as_secs_f64());
        runs += 1;
    }
    best
}

/// Runs `work` on so many threads.
fn on_threads(threads: usize, work: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        for thread in 1..threads {
            let work = &work;
            scope.spawn(move || work(thread));
        }
        work(0);
    });
}

/// Loops of instructions for one measurement of a peak: much longer than threads take to start.
const REPEATS: usize = 64;

/// Shape of matrices, and number of rows that they are multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrices {
    /// Type of the weights.
    pub ty: WeightType,
    /// Weights of a row.
    pub length: usize,
    /// Rows of a matrix.
    pub rows: usize,
    /// Rows of activations.
    pub tokens: usize,
    /// Rows of weights are interleaved; what weights mean does not matter here.
    pub interleaved: bool,
}

impl Matrices {
    /// Bytes of a matrix.
    pub const fn bytes(&self) -> usize {
        self.ty.row_bytes(self.length) * self.rows
    }
}

/// Operations per second that so many threads reach at most in products with weights of a type: with the instructions
/// alone that multiply these.
///
/// # Panics
/// If the machine does not have the instructions.
pub fn product_peak(ty: WeightType, isa: Isa, threads: usize, time: Duration) -> f64 {
    peak(Arithmetic::of(ty, isa), isa, threads, time)
}

/// The same for attention over keys and values of a type.
pub fn attention_peak(ty: CacheType, threads: usize, time: Duration) -> f64 {
    peak(Arithmetic::of_cache(ty), Isa::best(), threads, time)
}

fn peak(arithmetic: Arithmetic, isa: Isa, threads: usize, time: Duration) -> f64 {
    assert!(Isa::available().contains(&isa), "{isa:?} is not there");
    let operations = AtomicUsize::new(0);
    let best = shortest(time, || {
        operations.store(0, Ordering::Relaxed);
        on_threads(threads, |_| {
            for _ in 0..REPEATS {
                operations.fetch_add(multiply(arithmetic, isa) as usize, Ordering::Relaxed);
            }
        });
    });
    operations.into_inner() as f64 / best
}

/// Seconds and number of products with all whole matrices that `weights` holds, by tiles of so many threads; `None` if
/// it holds none, or rows are not whole blocks.
pub fn products(matrices: &Matrices, weights: &[u8], threads: usize, time: Duration) -> Option<(f64, usize)> {
    let Matrices { ty, length, rows, tokens, interleaved } = *matrices;
    let product = Product::fastest(ty, length)?;
    let whole = rows.is_multiple_of(Interleaving::ROWS);
    let product = if interleaved { product.with_interleaved().filter(|_| whole)? } else { product };
    let count = weights.len() / matrices.bytes();
    if count == 0 || tokens == 0 || threads == 0 {
        return None;
    }
    let activations: Vec<f32> = (0..length * tokens).map(|i| (i % 61) as f32 / 61.0 - 0.5).collect();
    let row = product.activation_bytes().next_multiple_of(64);
    let mut inputs = lines(row * tokens);
    let mut outs = vec![0.0f32; rows * tokens];
    let part = Product::scratch_bytes().next_multiple_of(64);
    let mut panels = lines(part * threads);
    let (inputs, outs, panels) =
        (Shared(inputs.as_mut_ptr()), Shared(outs.as_mut_ptr()), Shared(panels.as_mut_ptr()));
    let share =
        |thread: usize, of: usize| -> Range<usize> { of * thread / threads..of * (thread + 1) / threads };
    let groups = |thread: usize| {
        let groups = share(thread, rows.div_ceil(Interleaving::ROWS));
        groups.start * Interleaving::ROWS..rows.min(groups.end * Interleaving::ROWS)
    };
    let best = shortest(time, || {
        on_threads(threads, |thread| {
            for token in share(thread, tokens) {
                // SAFETY: the buffers have room for all tokens, and each is one thread's.
                unsafe {
                    let to = inputs.at().cast::<u8>().add(token * row);
                    product.quantise(activations[token * length..].as_ptr(), to);
                }
            }
        });
        on_threads(threads, |thread| {
            let columns: Vec<Column> = (0..tokens)
                // SAFETY: within the buffers.
                .map(|token| unsafe {
                    let input = inputs.at().cast::<u8>().add(token * row);
                    Column { input, out: outs.at().add(token * rows) }
                })
                .collect();
            for matrix in weights.chunks_exact(matrices.bytes()) {
                // SAFETY: the matrix has the rows; each row of the results, and each panel, is one thread's.
                unsafe {
                    let panel = panels.at().cast::<u8>().add(thread * part);
                    let mine = groups(thread);
                    product.run(matrix.as_ptr(), ty.row_bytes(length), mine, &columns, panel);
                }
            }
        });
    });
    Some((best, count))
}

/// Bytes of keys and values per second that so many threads read, for a token at a depth of `shape.positions`.
///
/// # Errors
/// There is no kernel for this shape.
pub fn attention(shape: Shape, threads: usize, time: Duration) -> Result<f64, Unsupported> {
    let plan = Plan::new(shape, threads, Isa::best())?;
    let Shape { tokens, heads, kv_heads, positions, key_length, value_length, .. } = shape;
    let of = |ty: CacheType, length: usize| ty.row_bytes(length) * kv_heads;
    let (key, value) = (of(shape.keys, key_length), of(shape.values, value_length));
    let bytes = positions * (key + value);
    let layers = (COLD / bytes).max(1);
    // Scales of 2^-8, and small numbers.
    let plausible =
        |len: usize| -> Vec<u8> { (0..len).map(|i| if i % 2 == 1 { 0x1c } else { i as u8 }).collect() };
    let (keys, values) = (plausible(layers * positions * key), plausible(layers * positions * value));
    let queries: Vec<f32> = (0..tokens * heads * key_length).map(|i| (i % 61) as f32 / 61.0 - 0.5).collect();
    let mut out = vec![0.0f32; tokens * heads * value_length];
    let part = plan.scratch_bytes().next_multiple_of(64);
    let (mut scratch, mut shared) = (lines(part * threads), lines(plan.shared_bytes()));
    let out = out.as_mut_ptr().cast();
    let (scratch, shared) = (Shared(scratch.as_mut_ptr()), Shared(shared.as_mut_ptr()));
    let mut layer = 0;
    let best = shortest(time, || {
        let rows = |at: &[u8], row: usize| Rows {
            at: at[layer * positions * row..].as_ptr(),
            position: row,
            head: row / kv_heads,
            stream: 0,
        };
        let (query, result) = (key_length * 4, value_length * 4);
        let call = Call {
            queries: Rows { at: queries.as_ptr().cast(), position: query, head: tokens * query, stream: 0 },
            keys: rows(&keys, key),
            values: rows(&values, value),
            mask: None,
            sinks: None,
            out: Rows { at: out, position: heads * result, head: result, stream: 0 },
            scale: 1.0 / (key_length as f32).sqrt(),
            max_bias: 0.0,
            softcap: 0.0,
        };
        let done = AtomicUsize::new(0);
        on_threads(threads, |thread| {
            let (items, merges) = (plan.items(), plan.merges());
            let share = |of: usize| of * thread / threads..of * (thread + 1) / threads;
            // SAFETY: the buffers have the sizes of the shape and the plan; each item, each merge and each part of the
            // scratch is one thread's, and merges come after all items.
            unsafe {
                let scratch = scratch.at().cast::<u8>().add(thread * part);
                for item in share(items) {
                    plan.run(&call, item, scratch, shared.at().cast());
                }
                done.fetch_add(1, Ordering::AcqRel);
                while merges > 0 && done.load(Ordering::Acquire) < threads {
                    std::hint::spin_loop();
                }
                for merge in share(merges) {
                    plan.merge(&call, merge, shared.at().cast());
                }
            }
        });
        layer = (layer + 1) % layers;
    });
    Ok(bytes as f64 / best)
}
