//! Files of images, which may come from anywhere.

use image::error::{ImageError, LimitErrorKind};
use image::{ImageReader, Limits};
use sha2::{Digest, Sha256};
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use terrace_ggml::vision::Bitmap;

/// Most bytes of a file.
const MOST_BYTES: usize = 32 << 20;

/// Most pixels: 4096 x 4096. Projectors scale images down to fewer.
const MOST_PIXELS: u64 = 1 << 24;

/// Most pixels in a row, or rows.
const MOST_SIDE: u32 = 1 << 14;

/// Most memory while an image is decoded: eight bytes for each pixel, and as many as that for the
/// decoder.
const MOST_MEMORY: u64 = 16 * MOST_PIXELS;

/// A decoded image.
#[derive(Clone, Debug)]
pub struct Image {
    pub(super) bitmap: Bitmap,
    /// A hash of its pixels.
    pub(super) contents: [u8; 32],
}

/// Why a file is not an image that can be read. Displays as one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageReadError {
    #[error("it has {bytes} bytes, but at most {most} are read")]
    TooLong {
        /// Its length.
        bytes: usize,
        most: usize,
    },
    /// Of no known form.
    #[error("it is not a PNG, JPEG, WebP, GIF or BMP image")]
    Unknown,
    /// Too many pixels.
    #[error(
        "it has {width} x {height} pixels, but at most {} are read, and {} in a row or column",
        MOST_PIXELS,
        MOST_SIDE
    )]
    TooLarge {
        /// Pixels in a row.
        width: u32,
        /// Rows.
        height: u32,
    },
    /// No pixels.
    #[error("it has no pixels")]
    Empty,
    /// It takes too much memory.
    #[error("decoding it takes more than {} MiB", MOST_MEMORY >> 20)]
    Memory,
    #[error("it cannot be decoded: {0}")]
    Damaged(String),
}

impl Image {
    /// Decodes a file: the first picture of one with several. Transparent pixels have the colour
    /// that the file gives them, as with llama.cpp's own decoder.
    ///
    /// # Errors
    /// [`ImageReadError`], before more memory is taken than an image of the largest size needs.
    pub fn read(bytes: &[u8]) -> Result<Self, ImageReadError> {
        if bytes.len() > MOST_BYTES {
            return Err(ImageReadError::TooLong { bytes: bytes.len(), most: MOST_BYTES });
        }
        // The decoders are fuzzed by their authors; if one panics all the same, that is an error of
        // this image.
        catch_unwind(AssertUnwindSafe(|| decode(bytes)))
            .unwrap_or_else(|_| Err(ImageReadError::Damaged("the decoder failed".into())))
    }

    /// Pixels in a row, and rows.
    pub const fn size(&self) -> (u32, u32) {
        (self.bitmap.width(), self.bitmap.height())
    }
}

fn decode(bytes: &[u8]) -> Result<Image, ImageReadError> {
    let reader = || {
        let reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format();
        // Bytes in memory can be read.
        let mut reader = reader.map_err(|error| ImageReadError::Damaged(error.to_string()))?;
        reader.limits(limits());
        reader.format().map(|_| reader).ok_or(ImageReadError::Unknown)
    };
    let (width, height) = reader()?.into_dimensions().map_err(of_library)?;
    if u64::from(width) * u64::from(height) > MOST_PIXELS || width.max(height) > MOST_SIDE {
        return Err(ImageReadError::TooLarge { width, height });
    }
    let decoded = reader()?.decode().map_err(of_library)?.into_rgb8();
    let (width, height) = decoded.dimensions();
    let bitmap = Bitmap::new(width, height, decoded.into_raw()).ok_or(ImageReadError::Empty)?;
    let contents = Sha256::new()
        .chain_update(width.to_le_bytes())
        .chain_update(height.to_le_bytes())
        .chain_update(bitmap.pixels())
        .finalize();
    Ok(Image { bitmap, contents: contents.into() })
}

fn limits() -> Limits {
    let mut limits = Limits::default();
    // Dimensions are compared after they were read, for a better message.
    limits.max_alloc = Some(MOST_MEMORY);
    limits
}

fn of_library(error: ImageError) -> ImageReadError {
    match error {
        ImageError::Limits(limit) if limit.kind() == LimitErrorKind::InsufficientMemory => {
            ImageReadError::Memory
        }
        ImageError::Unsupported(_) => ImageReadError::Unknown,
        error => {
            let text: String =
                error.to_string().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            ImageReadError::Damaged(text)
        }
    }
}
