//! Text from bytes that arrive in pieces.

/// Turns a stream of bytes into text. An incomplete character waits for its remaining bytes;
/// invalid bytes become U+FFFD.
#[derive(Clone, Debug, Default)]
pub struct Utf8Stream {
    pending: Vec<u8>,
}

impl Utf8Stream {
    /// Adds bytes, and returns the text that is now complete.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.pending) {
                Ok(valid) => {
                    text.push_str(valid);
                    self.pending.clear();
                    return text;
                }
                Err(error) => {
                    let (valid, rest) = self.pending.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    let Some(invalid) = error.error_len() else {
                        self.pending = rest.to_vec();
                        return text;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    self.pending = rest[invalid..].to_vec();
                }
            }
        }
    }

    /// Ends the stream: returns U+FFFD for an incomplete character, otherwise nothing.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_split_anywhere_come_out_whole() {
        let text = "a é 漢 🦀 z";
        for size in 1..6 {
            let mut stream = Utf8Stream::default();
            let mut out = String::new();
            for piece in text.as_bytes().chunks(size) {
                out += &stream.push(piece);
            }
            out += &stream.finish();
            assert_eq!(out, text, "pieces of {size}");
        }
    }

    #[test]
    fn what_is_no_text_is_replaced_as_in_one_piece() {
        let bytes = b"ok \xff\xfe \xe6\xbc \xf0\x9f\xa6";
        let mut stream = Utf8Stream::default();
        let mut out: String = bytes.iter().map(|b| stream.push(&[*b])).collect();
        out += &stream.finish();
        assert_eq!(out, String::from_utf8_lossy(bytes));
    }

    #[test]
    fn nothing_whole_is_held_back() {
        let mut stream = Utf8Stream::default();
        assert_eq!(stream.push(b"ab\xe6"), "ab");
        assert_eq!(stream.push(b"\xbc\xa2!"), "漢!");
        assert_eq!(stream.finish(), "");
    }
}
