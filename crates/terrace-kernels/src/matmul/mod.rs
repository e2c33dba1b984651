//! Products of matrices with rows of activations.
//!
//! Weights are unpacked a panel of [`PANEL`] rows at a time: unsigned bytes, four of each of 16 rows side by side, which
//! is what dot products of bytes want, or floats. All rows of activations are multiplied with a panel before the next is
//! unpacked. For few rows of activations, weights go from memory to products directly: 16 rows at once (`few`), or one
//! after the other (`dots`, and with AVX2). Weights are in rows, or 16 of these are interleaved (`interleave`), which `lanes` hides from
//! what loads them. Types with blocks of 32 weights (`blocks`), those with blocks of 256 (`superblocks`) and floats
//! (`floats`) quantise, or round, activations as ggml does for each, and so need different rows of them
//! ([`Product::shares_activations`]).
//!
//! A result's order of sums depends on the type and the row's length alone: not on the number of rows of activations,
//! on the panel, on the instructions or on the thread.

#[cfg(target_arch = "x86_64")]
mod ahead;
#[cfg(target_arch = "x86_64")]
mod amx;
mod blocks;
#[cfg(target_arch = "x86_64")]
mod choice;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod columns;
mod floats;
mod interleave;
#[cfg(target_arch = "x86_64")]
mod lanes;
#[cfg(target_arch = "x86_64")]
mod narrow;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod packed;
mod rows;
mod superblocks;
#[cfg(target_arch = "x86_64")]
mod wide;

pub use interleave::Interleaving;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::{sdot, smmla};
#[cfg(target_arch = "x86_64")]
pub use superblocks::load_rows as row_blocks;

use crate::isa::has_permutations;
use crate::{Isa, WeightType};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use rows::RowGroup;
use rows::{PanelBytes, PanelRange, interleave};
use std::ops::{Range, RangeInclusive};

/// Rows of weights that are unpacked together: a thread's share should be a multiple.
pub const PANEL: usize = 32;
/// Values of a row that are unpacked at a time.
const CHUNK: usize = 512;
/// Rows of weights in a vector.
const LANES: usize = 16;

/// Most rows of activations that are multiplied without a panel ([`Product::multiplies_few`]).
pub const FEW: usize = 4;
/// The same where panels take longer to unpack than they save: those of superblocks and of Q8_0 with AVX2.
const FEW_NARROW: usize = 15;

/// Least number of rows of activations that tiles of AMX multiply where it is not measured.
const TILES_FROM: usize = 8;

/// A row of activations, and where its results go.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The row as [`Product::quantise`] wrote it.
    pub input: *const u8,
    /// Result of weight row 0; that of row `i` is `i` floats after it.
    pub out: *mut f32,
}

// SAFETY: pointers whose use is up to the functions that are given a column.
unsafe impl Send for Column {}
// SAFETY: as above.
unsafe impl Sync for Column {}

/// Products of rows of a type and length.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    ty: WeightType,
    length: usize,
    isa: Isa,
    /// Least number of rows of activations that tiles of AMX multiply, where there are such.
    tiles_from: usize,
    /// Rows of weights are interleaved.
    interleaved: bool,
    /// The machine has permutations of bytes, which unpack types with grids.
    permutes: bool,
}

impl Product {
    /// Products of rows of `length` values; `None` if these are not whole blocks, of floats multiples of 32.
    pub fn new(ty: WeightType, length: usize, isa: Isa) -> Option<Self> {
        (length > 0 && length.is_multiple_of(ty.block())).then_some(Self {
            ty,
            length,
            isa,
            tiles_from: TILES_FROM,
            interleaved: false,
            permutes: isa.has_vnni() && has_permutations(),
        })
    }

    /// The same with what is fastest on this machine, which a measurement decides where the bits are the same.
    pub fn fastest(ty: WeightType, length: usize) -> Option<Self> {
        let product = Self::new(ty, length, Isa::best())?;
        #[cfg(target_arch = "x86_64")]
        if product.isa == Isa::Amx && !ty.is_float() {
            return Some(Self { tiles_from: choice::tiles_from(ty), ..product });
        }
        Some(product)
    }

    /// The same products on a processor without permutations of bytes.
    pub const fn without_permutations(self) -> Self {
        Self { permutes: false, ..self }
    }

    /// The same products, with the same bits, of weights whose rows are interleaved; `None` if these are not multiplied,
    /// or gain nothing, as types with grids.
    pub fn with_interleaved(self) -> Option<Self> {
        (self.isa.has_vnni() && self.multiplies_few() && !self.ty.has_grid())
            .then_some(Self { interleaved: true, ..self })
    }

    /// Returns true if the rows of weights are interleaved.
    pub const fn takes_interleaved(&self) -> bool {
        self.interleaved
    }

    /// The interleaving of rows, if they are interleaved.
    pub fn interleaving(&self) -> Option<Interleaving> {
        self.interleaved.then_some(Interleaving::new(self.ty, self.length, self.isa))
    }

    /// Type of the weights.
    pub const fn ty(&self) -> WeightType {
        self.ty
    }

    /// Returns true if activations quantised for one product are also the other's.
    pub const fn shares_activations(&self, other: &Self) -> bool {
        self.length == other.length
            && match (self.float_form(), other.float_form()) {
                (None, None) => {
                    self.ty.block() == other.ty.block() && self.takes_quads() == other.takes_quads()
                }
                (Some(a), Some(b)) => a as u8 == b as u8,
                _ => false,
            }
    }

    const fn float_form(&self) -> Option<floats::Form> {
        if self.ty.is_float() { Some(floats::Form::of(self.ty, self.isa)) } else { None }
    }

    /// Returns true if activations have a second order, for rows of weights that are multiplied one at a time.
    const fn takes_quads(&self) -> bool {
        self.ty.has_grid() && self.has_dots()
    }

    /// Bytes of a quantised row of activations.
    pub const fn activation_bytes(&self) -> usize {
        match self.float_form() {
            Some(form) => form.activation_bytes(self.length),
            None if self.takes_quads() => superblocks::Layout::of(self.length).bytes_with_quads,
            None if self.ty.has_superblocks() => superblocks::Layout::of(self.length).bytes,
            None => blocks::Layout::of(self.length).bytes,
        }
    }

    /// Bytes of a thread's scratch memory.
    pub const fn scratch_bytes() -> usize {
        let panels = largest([
            size_of::<blocks::Panel>(),
            size_of::<superblocks::Panel>(),
            size_of::<floats::Panel>(),
        ]);
        #[cfg(target_arch = "x86_64")]
        {
            let tiles = largest([
                size_of::<packed::Scratch<blocks::amx::Panel>>(),
                size_of::<packed::Scratch<superblocks::amx::Panel>>(),
                size_of::<floats::amx::Panel>(),
            ]);
            largest([panels, tiles, 0])
        }
        #[cfg(not(target_arch = "x86_64"))]
        panels
    }

    /// Returns true if up to [`FEW`] rows of activations are multiplied without unpacking the weights to memory, which
    /// is fast enough for single tokens.
    pub const fn multiplies_few(&self) -> bool {
        let multiplied = if self.ty.has_grid() {
            self.permutes
        } else {
            self.isa.multiplies_bytes() || self.isa.is_avx2()
        };
        multiplied && !self.ty.is_float()
    }

    /// Most rows of activations that are multiplied without a panel.
    const fn few(&self) -> usize {
        let slow_panels = self.ty.has_superblocks() || matches!(self.ty, WeightType::Q8_0);
        if !self.multiplies_few() {
            0
        } else if self.isa.is_avx2() && slow_panels {
            FEW_NARROW
        } else {
            FEW
        }
    }

    /// Returns true if a single row of activations is multiplied by one row of weights at a time, which is as fast as with
    /// interleaved ones.
    #[cfg(target_arch = "x86_64")]
    pub const fn has_dots(&self) -> bool {
        self.isa.has_vnni() && self.multiplies_few() && superblocks::dots::are_faster(self.ty, 1)
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub const fn has_dots(&self) -> bool {
        false
    }

    /// Numbers of rows of weights that should be multiplied together, all multiples of [`PANEL`]: for tiles of AMX, activations
    /// are packed each time, which more rows share.
    pub const fn rows_at_once(&self) -> RangeInclusive<usize> {
        if matches!(self.isa, Isa::Amx) && !self.ty.is_float() {
            16 * PANEL..=96 * PANEL
        } else {
            PANEL..=PANEL
        }
    }

    /// Quantises, or rounds, a row of activations.
    ///
    /// # Safety
    /// `from` is valid for the row, `to` for [`Product::activation_bytes`], aligned to 4 bytes. The machine has the
    /// instructions of the product's [`Isa`].
    pub unsafe fn quantise(&self, from: *const f32, to: *mut u8) {
        // SAFETY: the caller's contract.
        unsafe {
            match self.float_form() {
                Some(form) => floats::round(form, self.length, self.isa, from, to),
                None if self.ty.has_superblocks() => superblocks::quantise(self.length, self.isa, from, to),
                None => blocks::quantise(self.length, self.isa, from, to),
            }
            #[cfg(target_arch = "x86_64")]
            if self.takes_quads() {
                superblocks::add_quads(self.length, to);
            }
        }
    }

    /// Multiplies rows of weights, `stride` bytes apart, with all columns. If they are interleaved, the rows are whole
    /// groups of [`Interleaving::ROWS`], and `stride` is the bytes of a row.
    ///
    /// # Safety
    /// `weights` is valid for the rows, which count from its start, each column for the row that
    /// [`Product::quantise`] wrote and for the rows' results, which nothing else accesses, `scratch` for
    /// [`Product::scratch_bytes`] that no other thread uses, aligned to 64 bytes, unless there are few columns
    /// ([`Product::multiplies_few`]). The machine has the instructions of the product's [`Isa`].
    pub unsafe fn run(
        &self,
        weights: *const u8,
        stride: usize,
        rows: Range<usize>,
        columns: &[Column],
        scratch: *mut u8,
    ) {
        debug_assert!(
            !self.interleaved || rows.start.is_multiple_of(LANES) && rows.end.is_multiple_of(LANES),
            "parts of groups"
        );
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if columns.len() <= self.few() {
            // SAFETY: the caller's contract.
            unsafe { self.run_few(weights, stride, rows, columns) };
            return;
        }
        let isa = self.isa_for(columns.len());
        #[cfg(target_arch = "x86_64")]
        if isa == Isa::Amx && !self.ty.is_float() {
            // SAFETY: the caller's contract.
            unsafe { self.run_packed((weights, stride), rows, columns, scratch) };
            return;
        }
        #[cfg(target_arch = "x86_64")]
        let _tiles = (isa == Isa::Amx).then(|| {
            // SAFETY: the caller's contract.
            unsafe { crate::simd::tiles::Tiles::configure(amx::group_of(columns.len()), floats::amx::STEP) }
        });
        for part in self.parts(rows.clone(), self.chunk()) {
            #[cfg(target_arch = "x86_64")]
            let ahead = self.ahead(&part, (weights, stride), rows.end, columns);
            #[cfg(target_arch = "x86_64")]
            let part = PanelRange { ahead: Some(&ahead), ..part };
            // SAFETY: the caller's contract; for AMX, tiles are configured.
            unsafe {
                let at = weights.add(part.first * stride);
                if self.ty.is_float() {
                    floats::run(&part, isa, at, stride, columns, scratch);
                } else if self.ty.has_superblocks() {
                    superblocks::run(&part, isa, at, stride, columns, scratch);
                } else {
                    blocks::run(&part, isa, at, stride, columns, scratch);
                }
            }
        }
    }

    /// The instructions that multiply so many columns. With few, vectors are as fast as tiles of AMX and give the same
    /// bits. Tiles of BF16 have bits of their own, so that they multiply any number.
    fn isa_for(&self, columns: usize) -> Isa {
        let tiles = match self.float_form() {
            Some(form) => form == floats::Form::Pairs && columns > 0,
            None => columns >= self.tiles_from && (self.permutes || !self.ty.has_grid()),
        };
        if tiles { self.isa } else { self.isa.min(Isa::Avx512Bf16) }
    }

    /// Values of a row that are unpacked at a time.
    fn chunk(&self) -> usize {
        self.float_form().map_or(CHUNK, floats::Form::chunk)
    }

    /// Memory to request while a part of a panel is multiplied: as much of the next one's weights, and with the last part the
    /// places of its results.
    #[cfg(target_arch = "x86_64")]
    fn ahead<'a>(
        &self,
        part: &PanelRange<'_>,
        weights: (*const u8, usize),
        rows_end: usize,
        columns: &'a [Column],
    ) -> ahead::Ahead<'a> {
        let next = part.first + PANEL;
        let values = part.from..part.from + part.length;
        let with_results = if values.end == self.length && next < rows_end { columns } else { &[] };
        // As many columns as are multiplied at a time, at most.
        let turns = columns.len().div_ceil(8).max(1);
        ahead::Ahead::of_panel(self, weights, next, values, with_results, turns)
    }

    /// The panels of some rows, in parts of so many values.
    fn parts(&self, rows: Range<usize>, chunk: usize) -> impl Iterator<Item = PanelRange<'static>> {
        let product = *self;
        rows.clone().step_by(PANEL).flat_map(move |first| {
            let count = PANEL.min(rows.end - first);
            (0..product.length).step_by(chunk).map(move |from| {
                let length = chunk.min(product.length - from);
                PanelRange { first, count, ..product.part(from, length) }
            })
        })
    }

    /// Some values of no rows.
    const fn part(&self, from: usize, length: usize) -> PanelRange<'static> {
        let Self { ty, length: row, interleaved, permutes, .. } = *self;
        PanelRange {
            ty,
            row,
            from,
            length,
            first: 0,
            count: 0,
            interleaved,
            permutes,
            #[cfg(target_arch = "x86_64")]
            ahead: None,
            #[cfg(not(target_arch = "x86_64"))]
            ahead: std::marker::PhantomData,
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Product {
    /// Multiplies bytes with tiles of AMX.
    ///
    /// # Safety
    /// As for [`Product::run`]; the machine has AMX.
    unsafe fn run_packed(
        &self,
        weights: (*const u8, usize),
        rows: Range<usize>,
        columns: &[Column],
        scratch: *mut u8,
    ) {
        // SAFETY: the caller's contract: scratch memory that has room for each, aligned.
        unsafe {
            if self.ty.has_superblocks() {
                packed::run::<superblocks::amx::Superblocks>(
                    self,
                    weights,
                    rows,
                    columns,
                    &mut *scratch.cast(),
                );
            } else {
                packed::run::<blocks::amx::Blocks>(self, weights, rows, columns, &mut *scratch.cast());
            }
        }
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl Product {
    /// Multiplies without a panel.
    ///
    /// # Safety
    /// As for [`Product::run`]; the machine has AVX2, or DotProd.
    unsafe fn run_few(&self, weights: *const u8, stride: usize, rows: Range<usize>, columns: &[Column]) {
        for first in rows.clone().step_by(LANES) {
            let count = LANES.min(rows.end - first);
            // SAFETY: the caller's contract.
            unsafe {
                let weights = weights.add(first * stride);
                let Self { ty, length, interleaved, .. } = *self;
                let group = RowGroup { ty, length, weights, stride, interleaved, first, count };
                #[cfg(target_arch = "aarch64")]
                if ty.has_superblocks() {
                    superblocks::neon_few::run(&group, columns);
                } else {
                    blocks::neon::run_few(&group, columns);
                }
                #[cfg(target_arch = "x86_64")]
                if self.isa.is_avx2() {
                    if ty.has_superblocks() {
                        superblocks::avx2_few::run(&group, columns);
                    } else {
                        blocks::avx2_few::run(&group, columns);
                    }
                    continue;
                }
                #[cfg(target_arch = "x86_64")]
                let dots = !interleaved && superblocks::dots::are_faster(ty, columns.len());
                #[cfg(target_arch = "x86_64")]
                if ty.has_grid() {
                    superblocks::dots::run_grid(&group, columns);
                } else if dots {
                    superblocks::dots::run(&group, columns);
                } else if ty.has_superblocks() {
                    superblocks::few::run(&group, columns);
                } else {
                    blocks::few::run(&group, columns);
                }
            }
        }
    }
}

const fn largest(of: [usize; 3]) -> usize {
    let [a, b, c] = of;
    let most = if a > b { a } else { b };
    if most > c { most } else { c }
}

/// Mask of so many lanes.
#[cfg(target_arch = "x86_64")]
const fn of_lanes(count: usize) -> u16 {
    if count >= LANES { !0 } else { (1 << count) - 1 }
}
