//! Errors of projectors, and of images.

use crate::cxx::CxxError;
use std::path::PathBuf;

/// Why a projector was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum ProjectorError {
    /// llama.cpp refused it.
    #[error("cannot load the projector {}: {reason}", path.display())]
    Refused {
        path: PathBuf,
        /// Message that llama.cpp logged or threw.
        reason: String,
    },
    /// A path with a NUL byte.
    #[error("{0:?} contains a NUL byte")]
    Path(PathBuf),
}

/// Why an image was not prepared or encoded.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// llama.cpp refused it.
    #[error("llama.cpp cannot read an image of {width} x {height} pixels: {reason}")]
    Refused {
        /// Pixels in a row.
        width: u32,
        /// Rows.
        height: u32,
        /// Its logged message.
        reason: String,
    },
    /// Its embeddings could not be computed.
    #[error("llama.cpp cannot encode an image: {0}")]
    Encode(String),
    /// llama.cpp threw.
    #[error(transparent)]
    Cxx(#[from] CxxError),
}

/// The most telling of llama.cpp's lines, without its function's name.
pub(super) fn reason(lines: &[String]) -> String {
    let of = |mark: &str| lines.iter().find_map(|line| Some(line.split_once(mark)?.1.to_owned()));
    // The innermost error comes first.
    let line = of("failed to load model '").and_then(|rest| Some(rest.split_once("': ")?.1.to_owned()));
    let line = line.or_else(|| of("error: ")).or_else(|| of(": ")).or_else(|| lines.first().cloned());
    line.unwrap_or_else(|| "llama.cpp gave no reason".into()).trim().to_owned()
}
