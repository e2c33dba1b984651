//! Character classes of C, as llama.cpp's tokenisers apply them to bytes.

/// Returns what `isspace` does in the C locale. Unlike [`u8::is_ascii_whitespace`], it includes the
/// vertical tab.
pub const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}
