//! Compressed bodies.

use crate::error::ApiError;
use axum::http::{HeaderMap, header};
use flate2::read::MultiGzDecoder;
use std::io::Read;

/// Returns true if a body is compressed.
///
/// # Errors
/// In another way than gzip's.
pub fn of(headers: &HeaderMap) -> Result<bool, ApiError> {
    let mut packed = false;
    for coding in headers.get_all(header::CONTENT_ENCODING) {
        let coding = coding.to_str().unwrap_or("an unreadable one").trim().to_ascii_lowercase();
        match coding.as_str() {
            "" | "identity" => {}
            "gzip" | "x-gzip" if !packed => packed = true,
            _ => return Err(ApiError::unknown_coding(&coding)),
        }
    }
    Ok(packed)
}

/// The body that was compressed, of at most `most` bytes.
///
/// # Errors
/// It is larger, or is not what it is said to be.
pub fn unpacked(bytes: &[u8], most: usize) -> Result<Vec<u8>, ApiError> {
    let mut body = Vec::new();
    let read = MultiGzDecoder::new(bytes).take(most as u64 + 1).read_to_end(&mut body);
    read.map_err(|error| ApiError::request(format!("the request body is not valid gzip: {error}")))?;
    if body.len() > most { Err(ApiError::too_large(most)) } else { Ok(body) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn bodies_are_unpacked_within_the_limit() {
        assert_eq!(unpacked(&packed(b"{}"), 2).unwrap(), b"{}");
        let bomb = packed(&vec![b' '; 1 << 20]);
        assert_eq!(unpacked(&bomb, 1 << 10).unwrap_err().status, 413);
        for broken in [&b"{}"[..], &bomb[..20], b""] {
            assert_eq!(unpacked(broken, 1 << 21).unwrap_err().status, 400);
        }
    }

    #[test]
    fn other_codings_are_refused() {
        let headers =
            |coding: &str| HeaderMap::from_iter([(header::CONTENT_ENCODING, coding.parse().unwrap())]);
        assert!(!of(&HeaderMap::new()).unwrap() && !of(&headers("identity")).unwrap());
        assert!(of(&headers("GZIP")).unwrap());
        for other in ["br", "gzip, gzip", "deflate"] {
            assert_eq!(of(&headers(other)).unwrap_err().status, 415, "{other}");
        }
    }
}
