//! From how many rows of activations on tiles of AMX are faster than vectors on this machine.
//!
//! Both give the same bits, so that a measurement may decide, and another decide otherwise. It multiplies some panels a few
//! times, once for a type in a process.

use super::{Column, Product, TILES_FROM};
use crate::memory::{CacheLine, lines, lines_of};
use crate::{Isa, WeightType};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Weights of a row that is measured: several blocks of all types. Rows are as many as are multiplied together.
const LENGTH: usize = 1024;
/// Numbers of rows of activations that are tried. What is not faster with the last is not with more.
const COLUMNS: [usize; 4] = [TILES_FROM, 16, 32, 64];
const MOST_COLUMNS: usize = COLUMNS[COLUMNS.len() - 1];
/// From so many rows of activations on, tiles were faster in all types wherever other programs did not disturb the measurement.
/// So vectors are taken only if they are faster by one part in [`DOUBT`].
const SURE: usize = 32;
const DOUBT: u32 = 8;
/// All bytes of what is multiplied: floats, halves and exponents of it are numbers of the usual size. Zeros are not, as
/// exponents of MXFP4: processors may take much longer for such small numbers.
const BYTE: u8 = 0x3c;
/// The shortest run counts, once so many were about as short. Other programs make most of them longer.
const SHORT_RUNS: usize = 3;
/// As short: longer by one part in so many at most.
const TOLERANCE: u32 = 32;
/// Most runs, of a tenth of a millisecond each with the most columns.
const MOST_RUNS: usize = 40;

/// The least number of rows of activations that tiles multiply faster; `usize::MAX` if there is none.
pub(super) fn tiles_from(ty: WeightType) -> usize {
    static KNOWN: [OnceLock<usize>; WeightType::ALL.len()] =
        [const { OnceLock::new() }; WeightType::ALL.len()];
    let index = WeightType::ALL.iter().position(|known| *known == ty);
    index.map_or(usize::MAX, |index| *KNOWN[index].get_or_init(|| measure(ty)))
}

fn measure(ty: WeightType) -> usize {
    if Isa::best() != Isa::Amx {
        return usize::MAX;
    }
    let product = |isa| Product::new(ty, LENGTH, isa);
    let Some((tiles, vectors)) = product(Isa::Amx).zip(product(Isa::Avx512Bf16)) else { return usize::MAX };
    let mut buffers = Buffers::of(&tiles);
    let faster = |columns: &usize| {
        let (mut of_tiles, mut of_vectors) = (Shortest::NONE, Shortest::NONE);
        for _ in 0..MOST_RUNS {
            of_tiles.add(buffers.run(&tiles, *columns));
            of_vectors.add(buffers.run(&vectors, *columns));
            if of_tiles.seen.min(of_vectors.seen) >= SHORT_RUNS {
                break;
            }
        }
        let doubt = if *columns >= SURE { of_vectors.time / DOUBT } else { Duration::ZERO };
        of_tiles.time < of_vectors.time + doubt
    };
    COLUMNS.into_iter().find(faster).unwrap_or(usize::MAX)
}

/// The shortest of some runs, and how many were about as short.
struct Shortest {
    time: Duration,
    seen: usize,
}

impl Shortest {
    const NONE: Self = Self { time: Duration::MAX, seen: 0 };

    fn add(&mut self, run: Duration) {
        if run < self.time {
            // Runs that were about as short before may not be any more.
            let still = self.seen > 0 && self.time - run <= run / TOLERANCE;
            *self = Self { time: run, seen: if still { self.seen + 1 } else { 1 } };
        } else if run - self.time <= self.time / TOLERANCE {
            self.seen += 1;
        }
    }
}

/// Rows of weights, activations and results.
struct Buffers {
    rows: usize,
    weights: Vec<CacheLine>,
    inputs: Vec<CacheLine>,
    outs: Vec<f32>,
    scratch: Vec<CacheLine>,
}

impl Buffers {
    fn of(product: &Product) -> Self {
        let rows = *product.rows_at_once().start();
        Self {
            rows,
            weights: lines_of(BYTE, product.ty.row_bytes(LENGTH) * rows),
            inputs: lines_of(BYTE, product.activation_bytes() * MOST_COLUMNS),
            outs: vec![0.0; rows * MOST_COLUMNS],
            scratch: lines(Product::scratch_bytes()),
        }
    }

    fn run(&mut self, product: &Product, columns: usize) -> Duration {
        let bytes = product.activation_bytes();
        let columns: Vec<Column> = (0..columns)
            .map(|i| Column {
                input: self.inputs.as_ptr().cast::<u8>().wrapping_add(i * bytes),
                out: self.outs.as_mut_ptr().wrapping_add(i * self.rows),
            })
            .collect();
        let began = Instant::now();
        // SAFETY: the buffers have room for the rows and so many columns, and the machine has the instructions.
        unsafe {
            let (weights, scratch) = (self.weights.as_ptr().cast(), self.scratch.as_mut_ptr().cast());
            product.run(weights, product.ty.row_bytes(LENGTH), 0..self.rows, &columns, scratch);
        }
        began.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_counted_that_are_about_as_short_as_the_shortest() {
        let seen = |runs: &[u64]| {
            let mut shortest = Shortest::NONE;
            runs.iter().for_each(|&micros| shortest.add(Duration::from_micros(micros)));
            (shortest.time.as_micros(), shortest.seen)
        };
        assert_eq!(seen(&[320]), (320, 1));
        assert_eq!(seen(&[320, 640, 330, 331, 320]), (320, 3));
        assert_eq!(seen(&[330, 330, 320]), (320, 3));
        assert_eq!(seen(&[330, 330, 100, 101]), (100, 2));
    }
}
