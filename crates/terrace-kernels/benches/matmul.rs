//! Tiles of a prompt: `cargo bench -p terrace-kernels --bench matmul -- [type] [isa] [rows of activations]`, and single
//! tokens with weights from memory: `... -- [type] memory [isa]`.
//!
//! Operations per second of an expert's matrix with so many rows of activations, of one thread, by processor time: the best of
//! many runs, and the median with weights and results that come from memory, as in a model. Quantising the activations is
//! counted once for each row of them.

#![allow(clippy::print_stdout, reason = "what a benchmark is for")]
#![allow(clippy::disallowed_methods, reason = "reads its arguments")]

use std::time::{Duration, Instant};
use terrace_kernels::Isa;
use terrace_kernels::WeightType;
use terrace_kernels::matmul::{Column, Product};

/// Columns and rows of matrices: an expert's up and down, and a dense one.
const SHAPES: [(usize, usize); 3] = [(2048, 768), (768, 2048), (4096, 4096)];

#[repr(C, align(64))]
#[derive(Clone)]
struct CacheLine([u8; 64]);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let wants =
        |i: usize, value: String| args.get(i).is_none_or(|arg| arg == "-" || value.contains(arg.as_str()));
    if args.get(1).is_some_and(|arg| arg == "memory") {
        let isas = Isa::available().iter().rev();
        let isa = isas.into_iter().find(|isa| wants(2, format!("{isa:?}"))).expect("an instruction set");
        return from_memory(*isa, |ty| wants(0, format!("{ty:?}")));
    }
    let only: Option<usize> = args.get(2).and_then(|arg| arg.parse().ok());
    let columns = only.map_or_else(|| vec![1, 2, 4, 8, 16, 32, 128, 512], |only| vec![only]);
    for &isa in Isa::available().iter().filter(|isa| args.len() > 1 || **isa == Isa::best()) {
        if !wants(1, format!("{isa:?}")) {
            continue;
        }
        for ty in WeightType::ALL.into_iter().filter(|ty| wants(0, format!("{ty:?}"))) {
            for (length, rows) in SHAPES {
                let mut line = format!("{isa:?} {:6} {length}x{rows}:", format!("{ty:?}"));
                for columns in columns.clone() {
                    if let Some(product) = Product::new(ty, length, isa) {
                        let [cached, of_memory] =
                            [1, MATRICES].map(|count| measure(product, (length, rows), columns, count));
                        line += &format!("  {columns}: {cached:5.0} {of_memory:5.0}");
                    }
                }
                println!("{line} GFLOP/s");
            }
        }
    }
}

/// Bytes of weights per second that a few tokens read with two threads, in rows and interleaved, in turns: those of the
/// fastest parts by processor time, since other load only makes parts slower.
fn from_memory(isa: Isa, wants: impl Fn(WeightType) -> bool) {
    let weights = cold_weights();
    let few = |ty: WeightType| Product::new(ty, 256, isa).is_some_and(|product| product.multiplies_few());
    for ty in WeightType::ALL.into_iter().filter(|ty| few(*ty) && wants(*ty)) {
        println!("{ty:?}: {:.1} GB/s interleaved", interleaving_rate(ty, weights));
        for (length, rows) in SHAPES {
            let mut line = format!("{:6} {length}x{rows}:", format!("{ty:?}"));
            let in_rows = Product::new(ty, length, isa).expect("whole blocks");
            for (tokens, cached) in [(1, false), (2, false), (4, false), (1, true)] {
                let mut rates = [0.0f64; 2];
                for _ in 0..3 {
                    for (product, best) in
                        [Some(in_rows), in_rows.with_interleaved()].into_iter().zip(&mut rates)
                    {
                        if let Some(product) = product {
                            let rate = rate(&product, length, rows, tokens, weights, cached);
                            *best = best.max(rate);
                        }
                    }
                }
                let name = if cached { "cached".to_owned() } else { tokens.to_string() };
                line += &format!("  {name}: {:5.1}, {:5.1}", rates[0], rates[1]);
            }
            println!("{line} GB/s; memory {:.1}", memory(weights));
        }
    }
}

/// Numbers in memory of large pages, several times the caches.
fn cold_weights() -> &'static [u8] {
    const BYTES: usize = 1 << 30;
    // SAFETY: new memory, which is kept until the process ends.
    unsafe {
        let (read, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let at = libc::mmap(std::ptr::null_mut(), BYTES, read, flags, -1, 0);
        assert!(at != libc::MAP_FAILED, "no memory");
        libc::madvise(at, BYTES, libc::MADV_HUGEPAGE);
        let bytes = std::slice::from_raw_parts_mut(at.cast::<u8>(), BYTES);
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = if i % 2 == 1 { 0x3c } else { (i / 2) as u8 | 0x40 };
        }
        bytes
    }
}

/// Threads of what reads memory.
const THREADS: usize = 2;
/// Bytes that a thread goes through between two looks at the time, and those that the second-level cache holds.
const PART: usize = 8 << 20;
const CACHED: usize = 1 << 20;

/// Sum over the threads of the rates of their fastest parts of so many bytes, each of which `work` goes through; bytes per
/// second / 1e9.
fn rates_of_parts(weights: &[u8], bytes: usize, work: impl Fn(&[u8]) + Sync) -> f64 {
    let rates = std::thread::scope(|scope| {
        let threads: Vec<_> = weights
            .chunks(weights.len() / THREADS)
            .map(|share| {
                let work = &work;
                scope.spawn(move || {
                    let mut best = f64::INFINITY;
                    for part in share.chunks(bytes) {
                        let begin = processor_time();
                        work(part);
                        best = best.min(processor_time() - begin);
                    }
                    bytes as f64 / best
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panics")).sum::<f64>()
    });
    rates / 1e9
}

/// Rate of products with weights from memory, or from the second-level cache.
fn rate(product: &Product, length: usize, rows: usize, tokens: usize, weights: &[u8], cached: bool) -> f64 {
    let bytes = if cached { CACHED } else { PART };
    let activations: Vec<f32> = (0..length).map(|i| (i as f32).sin()).collect();
    let stride = product.ty().row_bytes(length);
    // Parts have whole groups of rows, of any number.
    let share = bytes / (stride * 16) * 16;
    let again = if cached { 16 } else { 1 };
    let weights = if cached { &weights[..16 * CACHED] } else { weights };
    rates_of_parts(weights, bytes, |part| {
        let mut input = vec![CacheLine([0; 64]); product.activation_bytes().div_ceil(64)];
        // SAFETY: the buffer has the size of the product.
        unsafe { product.quantise(activations.as_ptr(), input.as_mut_ptr().cast()) };
        let mut outs = vec![0.0f32; share.max(rows) * tokens];
        let columns: Vec<Column> = outs
            .chunks_mut(share.max(rows))
            .map(|out| Column { input: input.as_ptr().cast(), out: out.as_mut_ptr() })
            .collect();
        for _ in 0..again {
            // SAFETY: the part has the rows, the results have room for them, and few columns need no scratch.
            unsafe { product.run(part.as_ptr(), stride, 0..share, &columns, std::ptr::null_mut()) };
        }
        std::hint::black_box(&outs);
    }) * (share * stride * again) as f64
        / bytes as f64
}

/// Bytes per second that the threads interleave, / 1e9.
fn interleaving_rate(ty: WeightType, weights: &[u8]) -> f64 {
    let product = Product::new(ty, 2048, Isa::best()).and_then(Product::with_interleaved);
    let Some(interleaving) = product.and_then(|product| product.interleaving()) else { return f64::NAN };
    let bytes = interleaving.group_bytes();
    rates_of_parts(weights, PART, |part| {
        let mut to = vec![0; bytes];
        for group in part.chunks_exact(bytes) {
            interleaving.apply(group, &mut to);
            std::hint::black_box(&to);
        }
    })
}

/// Bytes per second that the threads read, / 1e9.
fn memory(weights: &[u8]) -> f64 {
    rates_of_parts(weights, PART, |part| {
        let sums = part.chunks_exact(256).fold([0u64; 32], |mut sums, line| {
            for (sum, word) in sums.iter_mut().zip(line.chunks_exact(8)) {
                *sum ^= u64::from_ne_bytes(word.try_into().unwrap_or_default());
            }
            sums
        });
        std::hint::black_box(sums);
    })
}

/// Seconds of processor time of this thread.
fn processor_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the time.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Matrices that are taken in turns, which no cache holds together.
const MATRICES: usize = 32;

/// 10^9 operations per second with so many rows of activations, and so many matrices with results of their own in turns: of
/// one the best, of several the median.
fn measure(product: Product, (length, rows): (usize, usize), columns: usize, matrices: usize) -> f64 {
    let ty = product.ty();
    let stride = ty.row_bytes(length);
    let mut weights: Vec<u8> =
        (0..stride * rows * matrices).map(|i| if i % 2 == 1 { 0x10 } else { (i / 2) as u8 }).collect();
    if ty == WeightType::Mxfp4 {
        // Exponents, any of which would make numbers that processors take long for.
        weights.iter_mut().step_by(ty.row_bytes(ty.block())).for_each(|exponent| *exponent = 0x7c);
    }
    let activations: Vec<f32> = (0..length).map(|i| (i as f32).sin()).collect();
    let lines = product.activation_bytes().div_ceil(64);
    let mut inputs = vec![CacheLine([0; 64]); lines * columns];
    let mut outs = vec![0.0f32; rows * columns * matrices];
    let mut scratch = vec![CacheLine([0; 64]); Product::scratch_bytes().div_ceil(64)];
    let mut times = Vec::new();
    let start = Instant::now();
    while times.len() < 2 * matrices.max(2)
        || (start.elapsed() < Duration::from_millis(300) && times.len() < 1000)
    {
        let matrix = times.len() % matrices;
        let outs = &mut outs[matrix * rows * columns..(matrix + 1) * rows * columns];
        let weights = &weights[matrix * rows * stride..];
        let begin = processor_time();
        let all: Vec<Column> = inputs
            .chunks_mut(lines)
            .zip(outs.chunks_mut(rows))
            .map(|(input, out)| {
                // SAFETY: the buffers have the sizes of the product.
                unsafe { product.quantise(activations.as_ptr(), input.as_mut_ptr().cast()) };
                Column { input: input.as_ptr().cast(), out: out.as_mut_ptr() }
            })
            .collect();
        // SAFETY: as above.
        unsafe { product.run(weights.as_ptr(), stride, 0..rows, &all, scratch.as_mut_ptr().cast()) };
        times.push(processor_time() - begin);
    }
    std::hint::black_box(&outs);
    // What came first brings pages to memory.
    let times = &mut times[matrices - 1..];
    times.sort_by(f64::total_cmp);
    let time = if matrices == 1 { times[0] } else { times[times.len() / 2] };
    2.0 * (length * rows * columns) as f64 / time / 1e9
}
