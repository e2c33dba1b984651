//! The keys of a JSON object whose text may be cut off.

/// Returns true if the text begins with an object that has all these keys, as far as the text goes. Escapes in
/// keys are not decoded: keys of files of Terrace have none.
pub fn has_keys(text: &[u8], keys: &[&str]) -> bool {
    let mut missing: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    let (mut depth, mut at, mut key_next) = (0usize, 0, false);
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => {
                if depth == 0 && byte == b'[' {
                    return false;
                }
                depth += 1;
                key_next = depth == 1;
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    break;
                }
            }
            b',' => key_next = depth == 1,
            b'"' => {
                let Some(len) = string_len(&text[at..]) else { break };
                if key_next {
                    missing.retain(|key| *key != &text[at..at + len]);
                    key_next = false;
                }
                at += len + 1;
            }
            _ if depth == 0 && !byte.is_ascii_whitespace() => return false,
            _ => {}
        }
        if missing.is_empty() {
            return true;
        }
    }
    missing.is_empty()
}

/// Bytes of a string's text up to the quote that ends it.
fn string_len(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match text.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_the_object_itself_count() {
        for (text, is) in [
            (r#"{"a":1,"b":[{"c":2}]}"#, true),
            (r#" { "b" : "x", "a" : {} } "#, true),
            (r#"{"a":1,"b":[1,2,3"#, true),
            (r#"{"a":1}"#, false),
            (r#"{"c":{"a":1,"b":2}}"#, false),
            (r#"{"c":"a","d":"b"}"#, false),
            (r#"{"c":"\"a\":\"b\"","b":1}"#, false),
            (r#"[{"a":1,"b":2}]"#, false),
            (r#""a" "b""#, false),
            ("text {\"a\":1,\"b\":2}", false),
            ("", false),
            (r#"{"a"#, false),
            ("{\"\\", false),
        ] {
            assert_eq!(has_keys(text.as_bytes(), &["a", "b"]), is, "{text}");
        }
    }
}
