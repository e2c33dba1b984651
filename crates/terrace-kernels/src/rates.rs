//! Speed of kernels on this machine, with meaningless numbers from memory that no cache holds.

use crate::attention::{Call, Plan, Rows, Shape};
use crate::matmul::{Column, Interleaving, Product};
use crate::memory::{lines, prefetch};
use crate::peak::{Arithmetic, multiply};
use crate::{CacheType, Isa, WeightType};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Bytes by which reading is ahead of the sum: with fewer, a core of a Xeon (Emerald Rapids) reads 10 to 12 GB/s, with
/// these 14, as with vectors of 64 bytes.
const AHEAD: usize = 4096;
/// Bytes that are added up in one piece.
const PIECE: usize = 256;

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

/// A part of a repeated work that one thread does.
#[derive(Clone, Copy)]
struct Turn {
    /// Number of times that all of it was done before.
    pass: usize,
    /// Threads begin a step when all have finished the one before.
    step: usize,
    thread: usize,
}

/// Ends the threads that wait for a number of [`shortest`], also if the thread that counts panics.
struct Ending<'a>(&'a AtomicUsize);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(usize::MAX, Ordering::Release);
    }
}

/// The shortest time in seconds of a work of so many steps, which is repeated for `time`, and twice at least, by the same
/// threads: their start takes longer than some steps.
fn shortest(threads: usize, time: Duration, steps: usize, work: impl Fn(Turn) + Sync) -> f64 {
    let threads = threads.max(1);
    let (begun, finished) = (&AtomicUsize::new(0), &AtomicUsize::new(0));
    let work = &work;
    std::thread::scope(|scope| {
        let _ending = Ending(begun);
        for thread in 1..threads {
            scope.spawn(move || {
                let mut done = 0;
                loop {
                    wait_while(|| begun.load(Ordering::Acquire) == done);
                    match begun.load(Ordering::Acquire) {
                        usize::MAX => return,
                        number => done = number,
                    }
                    work(Turn { pass: (done - 1) / steps, step: (done - 1) % steps, thread });
                    finished.fetch_add(1, Ordering::Release);
                }
            });
        }
        let (start, mut best) = (Instant::now(), f64::INFINITY);
        for pass in 0.. {
            let before = Instant::now();
            for step in 0..steps {
                finished.store(0, Ordering::Relaxed);
                begun.store(pass * steps + step + 1, Ordering::Release);
                work(Turn { pass, step, thread: 0 });
                wait_while(|| finished.load(Ordering::Acquire) < threads - 1);
            }
            best = best.min(before.elapsed().as_secs_f64());
            if pass > 0 && start.elapsed() >= time {
                break;
            }
        }
        best
    })
}

/// Waits at full speed, but leaves the core to others from time to time, as there may be fewer than threads.
fn wait_while(waits: impl Fn() -> bool) {
    let mut turns = 0u32;
    while waits() {
        turns = turns.wrapping_add(1);
        if turns.is_multiple_of(4096) {
            std::thread::yield_now();
        }
        std::hint::spin_loop();
    }
}

/// Reads memory as fast as a core can, and returns the sum of its words.
pub fn read(memory: &[u8]) -> u64 {
    let mut sum = 0u64;
    for piece in memory.chunks(PIECE) {
        for line in (0..PIECE).step_by(64) {
            prefetch(piece.as_ptr().wrapping_add(AHEAD + line));
        }
        // The compiler turns this sum into several independent ones. (Sums written out by hand were compiled to one word at a
        // time.)
        let (words, _) = piece.as_chunks::<8>();
        sum = words.iter().fold(sum, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word)));
    }
    sum
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
    let best = shortest(threads, time, 1, |Turn { pass, .. }| {
        for _ in 0..REPEATS {
            let done = multiply(arithmetic, isa) as usize;
            if pass == 0 {
                operations.fetch_add(done, Ordering::Relaxed);
            }
        }
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
    let best = shortest(threads, time, 2, |Turn { step, thread, .. }| {
        if step == 0 {
            for token in share(thread, tokens) {
                // SAFETY: the buffers have room for all tokens, and each is one thread's.
                unsafe {
                    let to = inputs.at().cast::<u8>().add(token * row);
                    product.quantise(activations[token * length..].as_ptr(), to);
                }
            }
            return;
        }
        let columns: Vec<Column> = (0..tokens)
            // SAFETY: within the buffers.
            .map(|token| unsafe {
                let input = inputs.at().cast::<u8>().add(token * row);
                Column { input, out: outs.at().add(token * rows) }
            })
            .collect();
        for matrix in weights.chunks_exact(matrices.bytes()) {
            // SAFETY: the matrix has the rows; each row of the results, and each panel, is one thread's; inputs were
            // written in the step before.
            unsafe {
                let panel = panels.at().cast::<u8>().add(thread * part);
                let mine = groups(thread);
                product.run(matrix.as_ptr(), ty.row_bytes(length), mine, &columns, panel);
            }
        }
    });
    Some((best, count))
}

/// Speed of attention.
#[derive(Clone, Copy, Debug)]
pub struct Attended {
    /// Bytes of keys and values.
    pub bytes_per_s: f64,
    /// Floating point operations: a product and a sum for each value of a key, and of a value, and query.
    pub flops_per_s: f64,
}

/// Speed of attention by so many threads, where each token sees all of `shape.positions`. Keys and values are those that
/// `memory` holds, whatever they mean; layers after another are gone through. `None` if it does not hold a layer's, or there is no kernel for
/// this shape.
pub fn attention(shape: Shape, memory: &[u8], threads: usize, time: Duration) -> Option<Attended> {
    let plan = Plan::new(shape, threads, Isa::best()).ok()?;
    let Shape { tokens, heads, kv_heads, positions, key_length, value_length, .. } = shape;
    let of = |ty: CacheType, length: usize| ty.row_bytes(length) * kv_heads;
    let (key, value) = (of(shape.keys, key_length), of(shape.values, value_length));
    let bytes = positions * (key + value);
    let layers = memory.len() / bytes;
    if layers == 0 {
        return None;
    }
    let (keys, values) = memory.split_at(layers * positions * key);
    let queries: Vec<f32> = (0..tokens * heads * key_length).map(|i| (i % 61) as f32 / 61.0 - 0.5).collect();
    let mut out = vec![0.0f32; tokens * heads * value_length];
    let part = plan.scratch_bytes().next_multiple_of(64);
    let (mut scratch, mut shared) = (lines(part * threads), lines(plan.shared_bytes()));
    let out = Shared(out.as_mut_ptr().cast());
    let (scratch, shared) = (Shared(scratch.as_mut_ptr()), Shared(shared.as_mut_ptr()));
    let best = shortest(threads, time, 2, |Turn { pass, step, thread }| {
        let layer = pass % layers;
        let rows = |at: &[u8], row: usize| Rows {
            at: at[layer * positions * row..].as_ptr(),
            position: row,
            head: row / kv_heads,
            stream: 0,
        };
        let (query, result) = (key_length * 4, value_length * 4);
        let call = Call {
            queries: Rows { at: queries.as_ptr().cast(), position: query, head: tokens * query, stream: 0 },
            keys: rows(keys, key),
            values: rows(values, value),
            mask: None,
            sinks: None,
            out: Rows { at: out.at(), position: heads * result, head: result, stream: 0 },
            scale: 1.0 / (key_length as f32).sqrt(),
            max_bias: 0.0,
            softcap: 0.0,
        };
        let share = |of: usize| of * thread / threads..of * (thread + 1) / threads;
        // SAFETY: the buffers have the sizes of the shape and the plan; each item, each merge and each part of the
        // scratch is one thread's, and merges come after all items.
        unsafe {
            if step == 0 {
                let scratch = scratch.at().cast::<u8>().add(thread * part);
                for item in share(plan.items()) {
                    plan.run(&call, item, scratch, shared.at().cast());
                }
            } else {
                for merge in share(plan.merges()) {
                    plan.merge(&call, merge, shared.at().cast());
                }
            }
        }
    });
    let flops = 2 * tokens * heads * positions * (key_length + value_length);
    Some(Attended { bytes_per_s: bytes as f64 / best, flops_per_s: flops as f64 / best })
}
