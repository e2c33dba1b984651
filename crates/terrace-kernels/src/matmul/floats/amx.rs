//! Products of BF16 with AMX.
//!
//! Each tile adds the products of 32 values, in an order of the machine's own; even and odd ones have sums of their own.

use super::super::amx::{Activations, group_of};
use super::avx512::{Pairs, finish, unpack};
use super::{Column, LANES, PanelRange, WORDS};
use crate::simd::tiles::{TILE, TileSums, add_pairs, load, store, zero};
use std::arch::x86_64::*;

/// Bytes of a row of activations in a tile.
pub(in super::super) const STEP: usize = 64;
/// Numbers of 32 bits of a step.
const STEP_WORDS: usize = STEP / 4;

/// A thread's unpacked weights, and what tiles are loaded from and stored to.
#[repr(C, align(64))]
pub(in super::super) struct Panel {
    weights: super::Panel,
    activations: [[[u8; STEP]; TILE]; WORDS / STEP_WORDS],
    /// For each vector of rows: sums of even and of odd steps.
    sums: [[TileSums<f32>; 2]; 2],
}

/// Adds a part of a panel to the columns' results.
///
/// # Safety
/// As for [`super::run`]; the machine has AMX, and tiles are configured for [`group_of`] so many columns and [`STEP`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma,f16c")]
pub(in super::super) unsafe fn run(
    part: &PanelRange,
    weights: *const u8,
    stride: usize,
    columns: &[Column],
    panel: &mut Panel,
) {
    let Panel { weights: words, activations, sums } = panel;
    // SAFETY: the caller's contract.
    unsafe { unpack::<Pairs>(part, weights, stride, words) };
    let group = group_of(columns.len());
    // Rows are multiples of 32 values, and so parts are of steps.
    let steps = part.length / 2 / STEP_WORDS;
    for columns in columns.chunks(group) {
        // SAFETY: the caller's contract; 16 numbers of 16 rows are 16 rows of 64 bytes one after the other.
        unsafe {
            let activations = Activations::of(columns, group, part.from * 2, &mut activations[..steps]);
            zero::<0>();
            zero::<1>();
            zero::<2>();
            zero::<3>();
            for step in 0..steps {
                let tile = |vector: usize| words.words[vector][step * STEP_WORDS..].as_ptr().cast::<u8>();
                activations.load::<4>(step);
                load::<6>(tile(0), 4 * LANES);
                load::<7>(tile(1), 4 * LANES);
                if step % 2 == 0 {
                    add_pairs::<0, 4, 6>();
                    add_pairs::<2, 4, 7>();
                } else {
                    add_pairs::<1, 4, 6>();
                    add_pairs::<3, 4, 7>();
                }
            }
            store::<0, _>(&mut sums[0][0]);
            store::<1, _>(&mut sums[0][1]);
            store::<2, _>(&mut sums[1][0]);
            store::<3, _>(&mut sums[1][1]);
            for (i, column) in columns.iter().enumerate() {
                let of = |vector: usize, parity: usize| _mm512_load_ps(sums[vector][parity][i].as_ptr());
                let both = |vector| _mm512_add_ps(of(vector, 0), of(vector, 1));
                finish(part, std::array::from_ref(column), [[both(0), both(1)]]);
            }
        }
    }
}
