//! Dot products of few rows of activations, a row of weights at a time, with AVX-512 VNNI.
//!
//! A row is read as it lies in a file, without transposing, and a block's sum is an integer however its parts are added:
//! the bits are those of `few`, which has a row in each lane.

use super::super::RowGroup;
use super::super::columns::{Products, by_fours};
use super::super::lanes::{ROWS_AHEAD, request_ahead};
use super::dots_grid::Pairs;
use super::dots_k::KQuant;
use super::load_grid_rows::{Iq1M, Iq1S, Iq2S, Iq2Xs, Iq2Xxs, Iq3S, Iq3Xxs};
use super::load_iq4_rows::Iq4Xs;
use super::load_rows::{GROUP, Q2K, Q3K, Q4K, Q5K, Q6K};
use super::{BLOCK, Column, Layout};
use crate::WeightType;
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// Returns true if dot products with so many rows of activations are at least as fast as `few` with weights in rows.
/// Measured: docs/benchmarks/kernels.md, "K-quants, a row at a time" and "IQ types, a row at a time".
pub(in super::super) const fn are_faster(ty: WeightType, columns: usize) -> bool {
    match ty {
        WeightType::Q2K => columns <= 1,
        _ => ty.has_superblocks(),
    }
}

/// Multiplies 16 rows, or what is left of them, which are not interleaved, with the columns.
///
/// # Safety
/// As for [`super::super::Product::run`]; the machine has AVX-512 VNNI, and the type is one of [`are_faster`] without a
/// grid.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
pub(in super::super) unsafe fn run(group: &RowGroup, columns: &[Column]) {
    // SAFETY: the caller's contract.
    unsafe {
        match group.ty {
            WeightType::Q2K => of_type::<KQuant<Q2K>>(group, columns),
            WeightType::Q3K => of_type::<KQuant<Q3K>>(group, columns),
            WeightType::Q4K => of_type::<KQuant<Q4K>>(group, columns),
            WeightType::Q5K => of_type::<KQuant<Q5K>>(group, columns),
            WeightType::Q6K => of_type::<KQuant<Q6K>>(group, columns),
            _ => of_type::<Pairs<Iq4Xs>>(group, columns),
        }
    }
}

/// The same for a type with a grid.
///
/// # Safety
/// As for [`run`]; the machine has permutations of bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni,avx2,fma,f16c")]
pub(in super::super) unsafe fn run_grid(group: &RowGroup, columns: &[Column]) {
    // SAFETY: the caller's contract.
    unsafe {
        match group.ty {
            WeightType::Iq2Xxs => of_grid_type::<Pairs<Iq2Xxs>>(group, columns),
            WeightType::Iq2Xs => of_grid_type::<Pairs<Iq2Xs>>(group, columns),
            WeightType::Iq2S => of_grid_type::<Pairs<Iq2S>>(group, columns),
            WeightType::Iq3Xxs => of_grid_type::<Pairs<Iq3Xxs>>(group, columns),
            WeightType::Iq3S => of_grid_type::<Pairs<Iq3S>>(group, columns),
            WeightType::Iq1S => of_grid_type::<Pairs<Iq1S>>(group, columns),
            _ => of_grid_type::<Pairs<Iq1M>>(group, columns),
        }
    }
}

/// Rows that are multiplied together: a block of each makes a group.
pub(super) const ROWS: usize = GROUP;

/// Products of rows of a type.
pub(super) trait RowDots {
    /// Bytes of a block.
    const BYTES: usize;

    /// Adds the products of a block of each of four rows to the columns' results. `block` is the block's number, and the
    /// columns' layout.
    ///
    /// # Safety
    /// The blocks of the rows and the columns are there; the machine has the instructions of [`run`], or [`run_grid`].
    unsafe fn add<const N: usize>(
        blocks: &[*const u8; ROWS],
        block: (usize, &Layout),
        columns: &[Column; N],
        results: &mut [__m128; N],
    );
}

/// A function of its own for each type: compilers take longer for one that has all.
///
/// # Safety
/// As for [`run`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
#[inline(never)]
unsafe fn of_type<T: RowDots>(group: &RowGroup, columns: &[Column]) {
    // SAFETY: the caller's contract.
    unsafe { by_fours(columns, &Dots::<T> { group, ty: PhantomData }) }
}

/// # Safety
/// As for [`run_grid`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni,avx2,fma,f16c")]
#[inline(never)]
unsafe fn of_grid_type<T: RowDots>(group: &RowGroup, columns: &[Column]) {
    // SAFETY: the caller's contract.
    unsafe { by_fours(columns, &Dots::<T> { group, ty: PhantomData }) }
}

struct Dots<'a, T> {
    group: &'a RowGroup,
    ty: PhantomData<T>,
}

impl<T: RowDots> Products for Dots<'_, T> {
    #[inline(always)]
    unsafe fn add<const N: usize>(&self, columns: &[Column; N]) {
        let group = self.group;
        let layout = Layout::of(group.length);
        let ahead = ROWS_AHEAD.max(ROWS * group.stride);
        for first in (0..group.count).step_by(ROWS) {
            let rows: [*const u8; ROWS] = group.rows(first);
            // SAFETY: the caller's contract.
            unsafe {
                let mut results = [_mm_setzero_ps(); N];
                for block in 0..group.length / BLOCK {
                    let at = block * T::BYTES;
                    request_ahead(rows[0].wrapping_add(ROWS * at), ahead, ROWS * T::BYTES);
                    let blocks = rows.map(|row| row.wrapping_add(at));
                    T::add(&blocks, (block, &layout), columns, &mut results);
                }
                let mask = (1u8 << (group.count - first).min(ROWS)) - 1;
                for (column, results) in columns.iter().zip(results) {
                    _mm_mask_storeu_ps(column.out.wrapping_add(group.first + first), mask, results);
                }
            }
        }
    }
}
