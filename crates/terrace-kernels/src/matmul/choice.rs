//! From how many rows of activations on tiles of AMX are faster than vectors on this machine.
//!
//! Both give the same bits, so that a measurement may decide, and another decide otherwise. It multiplies some panels a few
//! times, once for a type in a process.

use super::{Column, Product, TILES_FROM};
use crate::memory::{CacheLine, lines};
use crate::{Isa, WeightType};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Weights of a row that is measured: several blocks of all types. Rows are as many as are multiplied together.
const LENGTH: usize = 1024;
/// Numbers of rows of activations that are tried. What is not faster with the last is not with more.
const COLUMNS: [usize; 4] = [TILES_FROM, 16, 32, 64];
const MOST_COLUMNS: usize = COLUMNS[COLUMNS.len() - 1];
/// Repetitions, of which the shortest counts.
const RUNS: usize = 4;

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
        let (mut best_of_tiles, mut best_of_vectors) = (Duration::MAX, Duration::MAX);
        for _ in 0..RUNS {
            best_of_tiles = best_of_tiles.min(buffers.run(&tiles, *columns));
            best_of_vectors = best_of_vectors.min(buffers.run(&vectors, *columns));
        }
        best_of_tiles < best_of_vectors
    };
    COLUMNS.into_iter().find(faster).unwrap_or(usize::MAX)
}

/// Rows of weights, activations and results, all zero.
struct Buffers {
    rows: usize,
    weights: Vec<CacheLine>,
    inputs: Vec<CacheLine>,
    outs: Vec<f32>,
    scratch: Vec<CacheLine>,
}

impl Buffers {
    fn of(product: &Product) -> Self {
        let rows = product.rows_at_once();
        Self {
            rows,
            weights: lines(product.ty.row_bytes(LENGTH) * rows),
            inputs: lines(product.activation_bytes() * MOST_COLUMNS),
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
