//! Tile registers of AMX.
//!
//! A product's first tile has up to 16 rows of 64 bytes, its second four bytes of each of 16 columns in a row, and a tile of
//! sums a row of 16 numbers for each of the first one's rows. Tiles are named by number, and each has one use:
//!
//! | tile | use |
//! |---|---|
//! | 0 - 3 | sums |
//! | 4 - 7 | what is multiplied |
//!
//! `core::arch` has no stable functions for tiles, so that these are written in assembly; their definitions are those of
//! Intel's Software Developer's Manual, volume 2.

use std::arch::asm;
use std::marker::PhantomData;

/// Rows of a tile.
pub(crate) const TILE: usize = 16;
/// Numbers of a row of sums.
const LANES: usize = 16;
/// Bytes of a row of a tile.
const ROW: usize = 64;

/// Sums of a tile: 16 numbers for each of its rows.
pub(crate) type TileSums<T> = [[T; LANES]; TILE];

/// The operand of LDTILECFG: shapes of all tiles.
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start: u8,
    reserved: [u8; 14],
    bytes_of_row: [u16; 16],
    rows: [u8; 16],
}

/// The tile registers of this thread, for as long as the value lives.
pub(crate) struct Tiles {
    /// Registers are a thread's own.
    thread: PhantomData<*mut ()>,
}

impl Tiles {
    /// Sets shapes for tiles 0 to 5 of `columns` rows, of which 4 and 5 have `bytes` bytes each, a multiple of 4, and for
    /// tiles 6 and 7 that these are multiplied with; 16 and 64 at most.
    ///
    /// # Safety
    /// The machine has AMX, and the process may use it.
    pub unsafe fn configure(columns: usize, bytes: usize) -> Self {
        debug_assert!(columns <= TILE && bytes <= ROW && bytes.is_multiple_of(4), "a tile");
        let mut shapes =
            Shapes { palette: 1, start: 0, reserved: [0; 14], bytes_of_row: [0; 16], rows: [0; 16] };
        for tile in 0..8 {
            let (rows, of_row) = match tile {
                0..4 => (columns, ROW),
                4..6 => (columns, bytes),
                _ => (bytes / 4, ROW),
            };
            (shapes.rows[tile], shapes.bytes_of_row[tile]) = (rows as u8, of_row as u16);
        }
        // SAFETY: the caller's contract; the shapes are of palette 1: rows of at most 64 bytes, and at most 16 of them.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const shapes, options(nostack, preserves_flags)) };
        Self { thread: PhantomData }
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: `configure` used the registers before. In their initial state, a switch to another thread need not keep
        // them.
        unsafe { asm!("tilerelease", options(nostack, preserves_flags)) };
    }
}

/// Sets tile `T` to zero.
///
/// # Safety
/// Within the life of a [`Tiles`], on its thread.
#[inline(always)]
pub(crate) unsafe fn zero<const T: u8>() {
    // SAFETY: the caller's contract: no compiled code uses tiles.
    unsafe { asm!("tilezero tmm{}", const T, options(nostack, preserves_flags, nomem)) };
}

/// Loads tile `T` from rows that are `stride` bytes apart.
///
/// # Safety
/// As for [`zero`]; the tile's rows are valid.
#[inline(always)]
pub(crate) unsafe fn load<const T: u8>(from: *const u8, stride: usize) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!("tileloadd tmm{}, [{} + {}]", const T, in(reg) from, in(reg) stride,
            options(nostack, preserves_flags, readonly));
    }
}

/// Stores tile `T`.
///
/// # Safety
/// As for [`zero`].
#[inline(always)]
pub(crate) unsafe fn store<const T: u8, N>(to: &mut TileSums<N>) {
    const { assert!(size_of::<TileSums<N>>() == TILE * ROW, "numbers of 32 bits") };
    // SAFETY: the caller's contract; sums have room for a tile.
    unsafe { store_rows::<T>(to.as_mut_ptr().cast(), ROW) }
}

/// Stores tile `T` in rows that are `stride` bytes apart.
///
/// # Safety
/// As for [`zero`]; the tile's rows are valid.
#[inline(always)]
pub(crate) unsafe fn store_rows<const T: u8>(to: *mut u8, stride: usize) {
    // SAFETY: the caller's contract.
    unsafe {
        asm!("tilestored [{} + {}], tmm{}", in(reg) to, in(reg) stride, const T, options(nostack, preserves_flags));
    }
}

/// Adds the dot products of tile `A`'s signed bytes with those of tile `B` to tile `SUMS`.
///
/// # Safety
/// As for [`zero`].
#[inline(always)]
pub(crate) unsafe fn add_bytes<const SUMS: u8, const A: u8, const B: u8>() {
    // SAFETY: the caller's contract.
    unsafe {
        asm!("tdpbssd tmm{}, tmm{}, tmm{}", const SUMS, const A, const B, options(nostack, preserves_flags, nomem));
    }
}

/// Adds the dot products of tile `A`'s signed bytes with those of tile `B`, unsigned, to tile `SUMS`.
///
/// # Safety
/// As for [`zero`].
#[inline(always)]
pub(crate) unsafe fn add_unsigned_bytes<const SUMS: u8, const A: u8, const B: u8>() {
    // SAFETY: the caller's contract.
    unsafe {
        asm!("tdpbsud tmm{}, tmm{}, tmm{}", const SUMS, const A, const B, options(nostack, preserves_flags, nomem));
    }
}

/// Adds the dot products of tile `A`'s bytes, unsigned, with tile `B`'s signed ones to tile `SUMS`.
///
/// # Safety
/// As for [`zero`].
#[inline(always)]
pub(crate) unsafe fn add_bytes_to_unsigned<const SUMS: u8, const A: u8, const B: u8>() {
    // SAFETY: the caller's contract.
    unsafe {
        asm!("tdpbusd tmm{}, tmm{}, tmm{}", const SUMS, const A, const B, options(nostack, preserves_flags, nomem));
    }
}

/// Adds the dot products of tile `A`'s BF16 with those of tile `B` to tile `SUMS`.
///
/// # Safety
/// As for [`zero`].
#[inline(always)]
pub(crate) unsafe fn add_pairs<const SUMS: u8, const A: u8, const B: u8>() {
    // SAFETY: the caller's contract.
    unsafe {
        asm!("tdpbf16ps tmm{}, tmm{}, tmm{}", const SUMS, const A, const B, options(nostack, preserves_flags, nomem));
    }
}

/// Multiplies tiles for nothing, into tile 0. After 1,200 cycles without a multiplication, the next one waits for
/// 900 until the unit is awake; after 1,000 it does not (measured on an Emerald Rapids).
///
/// # Safety
/// As for [`zero`].
#[inline(always)]
pub(crate) unsafe fn keep_awake() {
    // SAFETY: the caller's contract.
    unsafe { add_bytes::<0, 4, 6>() }
}

/// Multiplies whole tiles of bytes, with all tiles of sums in turns. Returns the number of operations.
///
/// # Safety
/// The machine has AMX, and the process may use it.
pub(crate) unsafe fn multiply(rounds: usize, bytes: bool) -> u64 {
    // SAFETY: the caller's contract.
    unsafe {
        let _tiles = Tiles::configure(TILE, ROW);
        for _ in 0..rounds {
            if bytes {
                add_bytes::<0, 4, 6>();
                add_bytes::<1, 4, 7>();
                add_bytes::<2, 5, 6>();
                add_bytes::<3, 5, 7>();
            } else {
                add_pairs::<0, 4, 6>();
                add_pairs::<1, 4, 7>();
                add_pairs::<2, 5, 6>();
                add_pairs::<3, 5, 7>();
            }
        }
    }
    let values = if bytes { ROW } else { ROW / size_of::<u16>() };
    2 * (4 * TILE * LANES * values * rounds) as u64
}
