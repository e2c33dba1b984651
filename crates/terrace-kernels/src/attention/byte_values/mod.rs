//! Weighted sums of quantised values, with AVX-512 VNNI.
//!
//! A row's weights, times the scales of a block of values, become numbers of 16 bits, relative to the largest of the
//! tile. Products of these with the values' bytes are added as integers, which is exact, and a tile's sum then becomes
//! floats. A rounded weight is off by at most 2^-16 of the largest. Minima of blocks (Q4_1, Q5_1) are added to all values
//! of a block, so they are summed once for each, as floats; the block's numbers are taken from their middle on, as those
//! of types without minima are, because rounding errors grow with them.
//!
//! Values are unpacked for all rows: two positions side by side, as products of pairs want them. With AMX, and many rows,
//! tiles multiply (`amx`).

mod amx;

use super::TILE;
use super::ahead::Both;
use crate::CacheType;
use crate::blocks::BLOCK;
use std::arch::x86_64::*;

/// Pairs of positions of a tile.
const PAIRS: usize = TILE / 2;
/// Most rows whose sums fit in the registers, two vectors each.
const ROWS: usize = 8;
/// Largest of the rounded weights.
const LARGEST: f32 = i16::MAX as f32;
/// Below this, the largest product of a weight and a scale is taken for zero: its inverse might be infinite.
const NOTHING: f32 = 1e-30;
/// Bits of a float that is not finite, and has no sign, or more.
const INFINITE: u32 = f32::INFINITY.to_bits();

/// Values of a tile.
#[derive(Clone, Copy)]
pub(super) struct ByteValues {
    pub at: *const u8,
    /// Bytes from one to the next.
    pub stride: usize,
    /// Values of each, whole blocks.
    pub length: usize,
    /// Number of values, at most [`TILE`].
    pub count: usize,
    pub ty: CacheType,
    /// Tiles of AMX multiply: the machine has them, the process may use them, and they are configured.
    pub tiles: bool,
}

/// Scratch memory: a block's values in pairs, and the scales of all blocks.
#[repr(C, align(64))]
struct Panel {
    pairs: [[i16; 2 * BLOCK]; PAIRS],
    /// For each position, the largest of its scales, without signs.
    largest: [f32; TILE],
    /// For each position, the middle of a block's values.
    middles: [f32; TILE],
    tiles: amx::Buffers,
}

/// Floats of scratch memory for values of so many floats.
pub(super) const fn scratch_floats(length: usize) -> usize {
    size_of::<Panel>() / 4 + length / BLOCK * TILE
}

/// Multiplies the sums of the rows that `seen` marks with their `factors`, and adds the values by `weights`, which
/// has [`TILE`] for each row, zeros after the last position.
///
/// # Safety
/// `sums` is valid for a row of values for each of `seen`, `weights` likewise, values for what they say, `scratch` for
/// [`scratch_floats`], aligned to 64 bytes. The machine has AVX-512 VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn add(
    weights: *const f32,
    factors: &[f32],
    seen: &[bool],
    values: &ByteValues,
    sums: *mut f32,
    scratch: *mut f32,
    ahead: &mut Both,
) {
    let blocks = values.length / BLOCK;
    let lines = ahead.share(blocks * PAIRS);
    // SAFETY: the caller's contract: scales come after the panel.
    unsafe {
        let panel = &mut *scratch.cast::<Panel>();
        let scales = scratch.add(size_of::<Panel>() / 4).cast::<[f32; TILE]>();
        panel.largest = [0.0; TILE];
        for block in 0..blocks {
            read_scales(values, block, &mut *scales.add(block), &mut panel.largest);
        }
        let mut inverses = [0.0; super::ROWS];
        let mut units = [0.0; super::ROWS];
        for row in (0..seen.len()).filter(|&row| seen[row]) {
            (inverses[row], units[row]) = unit(weights.add(row * TILE), &panel.largest);
        }
        let rows =
            Rows { weights, factors, seen, inverses: &inverses, units: &units, sums, length: values.length };
        for block in 0..blocks {
            match values.ty {
                CacheType::Q8_0 => unpack::<Bytes>(values, block, panel, lines, ahead),
                CacheType::Q4_0 | CacheType::Iq4Nl => {
                    unpack::<Nibbles<2>>(values, block, panel, lines, ahead)
                }
                CacheType::Q4_1 => unpack::<Nibbles<4>>(values, block, panel, lines, ahead),
                CacheType::Q5_0 => unpack::<Fives<2>>(values, block, panel, lines, ahead),
                CacheType::Q5_1 => unpack::<Fives<4>>(values, block, panel, lines, ahead),
                CacheType::F32 | CacheType::F16 | CacheType::Bf16 => {
                    unreachable!("values of quantised types")
                }
            }
            let scales = &*scales.add(block);
            let Panel { pairs, middles, tiles, .. } = &mut *panel;
            // No closures: these would be functions without the instructions of their caller.
            let middles = if values.ty.has_minima() {
                read_middles(values, block, scales, middles);
                Some(&*middles)
            } else {
                None
            };
            if values.tiles {
                amx::add(&rows.from(0, block), scales, middles, tiles);
                continue;
            }
            let mut row = 0;
            while row < seen.len() {
                let count = (seen.len() - row).min(ROWS);
                if seen[row..row + count].contains(&true) {
                    let rows = rows.from(row, block);
                    match count {
                        1 => rows.add::<1>(scales, middles, pairs),
                        2 => rows.add::<2>(scales, middles, pairs),
                        3 => rows.add::<3>(scales, middles, pairs),
                        4 => rows.add::<4>(scales, middles, pairs),
                        5 => rows.add::<5>(scales, middles, pairs),
                        6 => rows.add::<6>(scales, middles, pairs),
                        7 => rows.add::<7>(scales, middles, pairs),
                        _ => rows.add::<8>(scales, middles, pairs),
                    }
                }
                row += count;
            }
        }
    }
}

/// Reads the scales of a block of each position, zeros after the last.
///
/// # Safety
/// As for [`add`].
#[inline(always)]
unsafe fn read_scales(values: &ByteValues, block: usize, to: &mut [f32; TILE], largest: &mut [f32; TILE]) {
    // SAFETY: the caller's contract: a block begins with its scale.
    unsafe {
        read_halves(values, block, 0, to);
        for i in (0..TILE).step_by(16) {
            let largest = largest.as_mut_ptr().add(i);
            // As integers, since these are larger the larger a float is, and largest if it is no number.
            let scales = _mm512_castps_si512(_mm512_abs_ps(_mm512_loadu_ps(to.as_ptr().add(i))));
            let larger = _mm512_max_epu32(_mm512_loadu_si512(largest.cast()), scales);
            _mm512_storeu_si512(largest.cast(), larger);
        }
    }
}

/// Reads the half at `offset` in a block of each position, zeros after the last.
///
/// # Safety
/// As for [`add`]; a block is longer than `offset`.
#[inline(always)]
unsafe fn read_halves(values: &ByteValues, block: usize, offset: usize, to: &mut [f32; TILE]) {
    let mut halves = [0u16; TILE];
    // SAFETY: the caller's contract.
    unsafe {
        let mut at = values.at.add(values.ty.row_bytes(block * BLOCK) + offset);
        for half in &mut halves[..values.count] {
            *half = at.cast::<u16>().read_unaligned();
            at = at.wrapping_add(values.stride);
        }
        for i in (0..TILE).step_by(16) {
            let floats = _mm512_cvtph_ps(_mm256_loadu_si256(halves.as_ptr().add(i).cast()));
            _mm512_storeu_ps(to.as_mut_ptr().add(i), floats);
        }
    }
}

/// Reads what zero stands for in a block of each position: the minimum and half of all steps. Zeros after the last.
///
/// # Safety
/// As for [`add`]; the type has minima, `scales` are those of the block.
#[inline(always)]
unsafe fn read_middles(values: &ByteValues, block: usize, scales: &[f32; TILE], to: &mut [f32; TILE]) {
    let half = if values.ty.has_fifth_bits() { 16.0 } else { 8.0 };
    // SAFETY: the caller's contract: the minimum comes after the scale.
    unsafe {
        let half = _mm512_set1_ps(half);
        read_halves(values, block, 2, to);
        for i in (0..TILE).step_by(16) {
            let to = to.as_mut_ptr().add(i);
            let scales = _mm512_loadu_ps(scales.as_ptr().add(i));
            _mm512_storeu_ps(to, _mm512_fmadd_ps(half, scales, _mm512_loadu_ps(to)));
        }
    }
}

/// What a row's weights are multiplied with to become numbers of 16 bits, and what one of these stands for.
///
/// # Safety
/// As for [`add`].
#[inline(always)]
unsafe fn unit(weights: *const f32, scales: &[f32; TILE]) -> (f32, f32) {
    // SAFETY: the caller's contract.
    unsafe {
        let mut largest = _mm512_setzero_si512();
        for i in (0..TILE).step_by(16) {
            let product =
                _mm512_mul_ps(_mm512_loadu_ps(weights.add(i)), _mm512_loadu_ps(scales.as_ptr().add(i)));
            largest = _mm512_max_epu32(largest, _mm512_castps_si512(_mm512_abs_ps(product)));
        }
        let largest = _mm512_reduce_max_epu32(largest);
        if largest >= INFINITE {
            return (0.0, f32::NAN);
        }
        let largest = f32::from_bits(largest);
        if largest < NOTHING { (0.0, 0.0) } else { (LARGEST / largest, largest / LARGEST) }
    }
}

/// How 32 values of a block are stored.
trait Block {
    /// # Safety
    /// `at` is valid for a block; the machine has AVX-512.
    unsafe fn load(at: *const u8, table: __m128i) -> __m256i;
}

struct Bytes;
/// Nibbles from byte `AT` of the block on.
struct Nibbles<const AT: usize>;
/// Numbers of 5 bits, the fifth ones from byte `AT` of the block on: 16 is subtracted where these are 0.
struct Fives<const AT: usize>;

impl Block for Bytes {
    #[inline(always)]
    unsafe fn load(at: *const u8, _: __m128i) -> __m256i {
        // SAFETY: the caller's contract.
        unsafe { _mm256_loadu_si256(at.add(2).cast()) }
    }
}

impl<const AT: usize> Block for Nibbles<AT> {
    #[inline(always)]
    unsafe fn load(at: *const u8, table: __m128i) -> __m256i {
        // SAFETY: the caller's contract.
        unsafe {
            let packed = _mm_loadu_si128(at.add(AT).cast());
            let both = _mm256_set_m128i(_mm_srli_epi16::<4>(packed), packed);
            let nibbles = _mm256_and_si256(both, _mm256_set1_epi8(15));
            _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), nibbles)
        }
    }
}

impl<const AT: usize> Block for Fives<AT> {
    #[inline(always)]
    unsafe fn load(at: *const u8, table: __m128i) -> __m256i {
        // SAFETY: the caller's contract: nibbles come after the fifth bits.
        unsafe {
            let nibbles = Nibbles::<4>::load(at.add(AT), table);
            let zeros = !at.add(AT).cast::<u32>().read_unaligned();
            _mm256_mask_sub_epi8(nibbles, zeros, nibbles, _mm256_set1_epi8(16))
        }
    }
}

/// The first position of each pair. Weights are rounded 32 at a time, and lie as the instruction that packs them
/// leaves them: four of the first 16, then four of the others.
const POSITIONS: [usize; PAIRS] = {
    let mut positions = [0; PAIRS];
    let mut i = 0;
    while i < PAIRS {
        let (group, pair) = (i / 16, i % 16);
        positions[i] = group * 32 + pair % 4 / 2 * 16 + pair / 4 * 4 + pair % 2 * 2;
        i += 1;
    }
    positions
};

/// Unpacks a block of each position; there are zeros after the last.
///
/// # Safety
/// As for [`add`].
#[inline(always)]
unsafe fn unpack<B: Block>(
    values: &ByteValues,
    block: usize,
    to: &mut Panel,
    lines: usize,
    ahead: &mut Both,
) {
    // SAFETY: the caller's contract.
    unsafe {
        // From the middle on.
        let ty = if values.ty == CacheType::Q4_1 { CacheType::Q4_0 } else { values.ty };
        let table = match ty.nibbles() {
            Some(table) => _mm_loadu_si128(table.as_ptr().cast()),
            None => _mm_setzero_si128(),
        };
        let at = values.at.add(values.ty.row_bytes(block * BLOCK));
        if values.tiles {
            amx::unpack::<B>(values, at, table, &mut to.tiles, lines, ahead);
            return;
        }
        let whole = values.count == TILE;
        for (&first, to) in POSITIONS.iter().zip(&mut to.pairs) {
            ahead.request(lines);
            let mut both = [_mm256_setzero_si256(); 2];
            let first_at = at.wrapping_add(first.wrapping_mul(values.stride));
            if whole || first + 1 < values.count {
                both = [B::load(first_at, table), B::load(first_at.add(values.stride), table)];
            } else if first < values.count {
                both[0] = B::load(first_at, table);
            }
            let (low, high) =
                (_mm256_unpacklo_epi8(both[0], both[1]), _mm256_unpackhi_epi8(both[0], both[1]));
            let to = to.as_mut_ptr();
            _mm512_store_si512(to.cast(), _mm512_cvtepi8_epi16(low));
            _mm512_store_si512(to.add(BLOCK).cast(), _mm512_cvtepi8_epi16(high));
        }
    }
}

/// Rounds 32 weights times scales, in units. Of each 16 bytes, the first half is of the first 16 weights.
///
/// # Safety
/// As for [`add`].
#[inline(always)]
unsafe fn round(weights: *const f32, scales: *const f32, inverse: __m512) -> __m512i {
    // SAFETY: the caller's contract.
    unsafe {
        let mut rounded = [_mm512_setzero_si512(); 2];
        for (i, rounded) in rounded.iter_mut().enumerate() {
            let (weights, scales) = (weights.add(i * 16), scales.add(i * 16));
            let product = _mm512_mul_ps(_mm512_loadu_ps(weights), _mm512_loadu_ps(scales));
            *rounded = _mm512_cvtps_epi32(_mm512_mul_ps(product, inverse));
        }
        _mm512_packs_epi32(rounded[0], rounded[1])
    }
}

/// Some rows, from the first of them on.
struct Rows<'a> {
    weights: *const f32,
    factors: &'a [f32],
    seen: &'a [bool],
    inverses: &'a [f32],
    units: &'a [f32],
    /// The first row's sums of the block.
    sums: *mut f32,
    /// Floats from one row's sums to the next.
    length: usize,
}

impl<'a> Rows<'a> {
    /// The rows from `row` on, with the sums of a block.
    #[inline(always)]
    fn from(&self, row: usize, block: usize) -> Rows<'a> {
        Rows {
            weights: self.weights.wrapping_add(row * TILE),
            factors: &self.factors[row..],
            seen: &self.seen[row..],
            inverses: &self.inverses[row..],
            units: &self.units[row..],
            sums: self.sums.wrapping_add(row * self.length + block * BLOCK),
            length: self.length,
        }
    }

    /// Adds a block to the sums of `N` rows.
    ///
    /// # Safety
    /// As for [`add`].
    #[inline(always)]
    unsafe fn add<const N: usize>(
        &self,
        scales: &[f32; TILE],
        middles: Option<&[f32; TILE]>,
        pairs: &[[i16; 2 * BLOCK]; PAIRS],
    ) {
        let mut rounded = [[0i32; PAIRS]; N];
        // SAFETY: the caller's contract.
        unsafe {
            for (row, rounded) in rounded.iter_mut().enumerate() {
                let inverse = _mm512_set1_ps(self.inverses[row]);
                let (weights, scales) = (self.weights.add(row * TILE), scales.as_ptr());
                for i in [0, 32] {
                    let both = round(weights.add(i), scales.add(i), inverse);
                    _mm512_storeu_si512(rounded.as_mut_ptr().add(i / 2).cast(), both);
                }
            }
            let mut products = [[_mm512_setzero_si512(); 2]; N];
            // Unrolled, this loop would load everything first, and spill it.
            let count = std::hint::black_box(PAIRS);
            let mut pair = 0;
            while pair < count {
                let values = pairs.as_ptr().add(pair).cast::<i16>();
                let low = _mm512_load_si512(values.cast());
                let high = _mm512_load_si512(values.add(BLOCK).cast());
                for (products, rounded) in products.iter_mut().zip(&rounded) {
                    let weights = _mm512_set1_epi32(*rounded.as_ptr().add(pair));
                    products[0] = _mm512_dpwssd_epi32(products[0], low, weights);
                    products[1] = _mm512_dpwssd_epi32(products[1], high, weights);
                }
                pair += 1;
            }
            for (row, products) in products.into_iter().enumerate() {
                // Bytes were interleaved in halves of 16: products of values 0 to 7 and 16 to 23, then of the others.
                let halves = [
                    _mm512_shuffle_i64x2::<0b01_00_01_00>(products[0], products[1]),
                    _mm512_shuffle_i64x2::<0b11_10_11_10>(products[0], products[1]),
                ];
                self.add_products(row, halves, middles);
            }
        }
    }

    /// Adds a row's products, if it is seen.
    ///
    /// # Safety
    /// As for [`add`]; there are more than `row` rows.
    #[inline(always)]
    unsafe fn add_products(&self, row: usize, products: [__m512i; 2], middles: Option<&[f32; TILE]>) {
        // SAFETY: the caller's contract: there are so many rows.
        unsafe {
            if !*self.seen.get_unchecked(row) {
                return;
            }
            let unit = _mm512_set1_ps(*self.units.get_unchecked(row));
            let factor = _mm512_set1_ps(*self.factors.get_unchecked(row));
            // Not `map`, whose closure would lack these instructions.
            let mut middle = None;
            if let Some(middles) = middles {
                middle = Some(self.middle(row, middles));
            }
            let mut to = self.sums.wrapping_add(row.wrapping_mul(self.length));
            for products in products {
                let mut sums = _mm512_mul_ps(factor, _mm512_loadu_ps(to));
                if let Some(middle) = middle {
                    sums = _mm512_add_ps(sums, _mm512_set1_ps(middle));
                }
                _mm512_storeu_ps(to, _mm512_fmadd_ps(unit, _mm512_cvtepi32_ps(products), sums));
                to = to.wrapping_add(16);
            }
        }
    }

    /// The weighted sum of the middles of a block.
    ///
    /// # Safety
    /// As for [`add`].
    #[inline(always)]
    unsafe fn middle(&self, row: usize, middles: &[f32; TILE]) -> f32 {
        // SAFETY: the caller's contract.
        unsafe {
            let mut sum = _mm512_setzero_ps();
            for i in (0..TILE).step_by(16) {
                let weights = _mm512_loadu_ps(self.weights.add(row * TILE + i));
                sum = _mm512_fmadd_ps(weights, _mm512_loadu_ps(middles.as_ptr().add(i)), sum);
            }
            _mm512_reduce_add_ps(sum)
        }
    }
}
