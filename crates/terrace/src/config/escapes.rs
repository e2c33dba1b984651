//! Escapes in prompts, as llama.cpp's `-e` processes them.

use std::ffi::OsString;

/// The options whose values are prompts.
const PROMPTS: [&str; 3] = ["-p", "--prompt", "--system"];

/// Processes the escapes in all prompts of a command line.
pub fn process(words: &mut [OsString]) {
    let mut is_value = false;
    for word in words {
        let Some(text) = word.to_str() else {
            is_value = false;
            continue;
        };
        if std::mem::take(&mut is_value) {
            *word = unescaped(text).into();
        } else if PROMPTS.contains(&text) {
            is_value = true;
        } else if let Some((name, value)) = text.split_once('=').filter(|(name, _)| PROMPTS.contains(name)) {
            *word = format!("{name}={}", unescaped(value)).into();
        } else if text == "--" {
            return;
        }
    }
}

/// A text with its escapes processed: a line feed, a return, a tab, quotation marks, a backslash, and `\xHH` for a
/// character of ASCII. Others stay.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let mut chars = after.chars();
        let escape = chars.next();
        rest = chars.as_str();
        match escape {
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some(same @ ('\'' | '"' | '\\')) => out.push(same),
            Some('x') => match after.get(1..3).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                Some(byte) if byte.is_ascii() => {
                    out.push(char::from(byte));
                    rest = &after[3..];
                }
                _ => out.push_str("\\x"),
            },
            Some(other) => out.extend(['\\', other]),
            None => out.push('\\'),
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_those_of_llama_cpp() {
        for (written, read) in [
            (r"one\ntwo", "one\ntwo"),
            (r"\t\r\\\'", "\t\r\\'"),
            (r"\x41\x4", r"A\x4"),
            (r"\xff\q", r"\xff\q"),
            ("end\\", "end\\"),
        ] {
            assert_eq!(unescaped(written), read, "{written}");
        }
    }

    #[test]
    fn only_prompts_have_escapes() {
        let mut words =
            ["run", "-p", r"a\nb", r"--system=c\n", "-f", r"x\n", "--", r"\n"].map(OsString::from);
        process(&mut words);
        assert_eq!(
            words,
            ["run", "-p", "a\nb", "--system=c\n", "-f", r"x\n", "--", r"\n"].map(OsString::from)
        );
    }
}
