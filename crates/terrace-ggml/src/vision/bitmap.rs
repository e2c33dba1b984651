//! The pixels of an image.

use llama_cpp_sys_2 as sys;
use std::ptr::NonNull;

/// Red, green and blue of an image's pixels, a byte each, row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bitmap {
    width: u32,
    height: u32,
    pixels: Vec<u8>,
}

impl Bitmap {
    /// The image of these pixels. `None` if it has none, or not three bytes for each.
    pub fn new(width: u32, height: u32, pixels: Vec<u8>) -> Option<Self> {
        let bytes = u64::from(width).checked_mul(u64::from(height))?.checked_mul(3)?;
        // C counts pixels in `int`.
        let fits = bytes > 0 && i32::try_from(bytes).is_ok();
        (fits && bytes == pixels.len() as u64).then_some(Self { width, height, pixels })
    }

    /// Pixels in a row.
    pub const fn width(&self) -> u32 {
        self.width
    }

    /// Number of rows.
    pub const fn height(&self) -> u32 {
        self.height
    }

    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }
}

/// `mtmd`'s copy of the pixels.
pub(super) struct Raw(pub NonNull<sys::mtmd_bitmap>);

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: owned, freed once; a destructor does not throw.
        unsafe { sys::mtmd_bitmap_free(self.0.as_ptr()) }
    }
}
