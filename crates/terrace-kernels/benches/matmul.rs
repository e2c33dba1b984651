//! Tiles of a prompt: `cargo bench -p terrace-kernels --bench matmul -- [type] [isa]`.
//!
//! Operations per second of an expert's matrix with so many rows of activations, of one thread; the best of many runs
//! by processor time. Quantising the activations is counted once for each row of them.

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
    for &isa in Isa::available().iter().filter(|isa| args.len() > 1 || **isa == Isa::best()) {
        if !wants(1, format!("{isa:?}")) {
            continue;
        }
        for ty in WeightType::ALL.into_iter().filter(|ty| wants(0, format!("{ty:?}"))) {
            for (length, rows) in SHAPES {
                let mut line = format!("{isa:?} {:6} {length}x{rows}:", format!("{ty:?}"));
                for columns in [1, 2, 4, 8, 16, 32, 128, 512] {
                    if let Some(product) = Product::new(ty, length, isa) {
                        line += &format!("  {columns}: {:5.0}", measure(product, ty, length, rows, columns));
                    }
                }
                println!("{line} GFLOP/s");
            }
        }
    }
}

/// Seconds of processor time of this thread.
fn processor_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the time.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn measure(product: Product, ty: WeightType, length: usize, rows: usize, columns: usize) -> f64 {
    let stride = ty.row_bytes(length);
    let weights: Vec<u8> =
        (0..stride * rows).map(|i| if i % 2 == 1 { 0x10 } else { (i / 2) as u8 }).collect();
    let activations: Vec<f32> = (0..length).map(|i| (i as f32).sin()).collect();
    let lines = product.activation_bytes().div_ceil(64);
    let mut inputs = vec![CacheLine([0; 64]); lines * columns];
    let mut outs = vec![0.0f32; rows * columns];
    let mut scratch = vec![CacheLine([0; 64]); Product::scratch_bytes().div_ceil(64)];
    let mut best = f64::INFINITY;
    let start = Instant::now();
    let mut runs = 0;
    while runs < 4 || (start.elapsed() < Duration::from_millis(300) && runs < 1000) {
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
        best = best.min(processor_time() - begin);
        runs += 1;
    }
    std::hint::black_box(&outs);
    2.0 * (length * rows * columns) as f64 / best / 1e9
}
