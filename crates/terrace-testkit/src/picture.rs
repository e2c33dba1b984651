//! Pictures.

use image::{ImageFormat, Rgb, RgbImage};
use std::io::Cursor;

/// The PNG file of a picture of this size, without two rows alike; another one for each seed.
///
/// # Panics
/// If there is no memory for it.
pub fn picture(width: u32, height: u32, seed: u32) -> Vec<u8> {
    let pixel = |x: u32, y: u32| {
        let [r, g, b] = [x * 7 + seed * 31, y * 5 + x * seed, (x ^ y) * 11 + seed].map(|value| value as u8);
        Rgb([r, g, b])
    };
    let mut file = Cursor::new(Vec::new());
    RgbImage::from_fn(width, height, pixel)
        .write_to(&mut file, ImageFormat::Png)
        .expect("memory for a picture");
    file.into_inner()
}
