//! Zero characters in grammars: llama.cpp ends a grammar at the first one, and no token has one.

/// Why a grammar cannot be used, if it has a zero character, as such or as an escape in a text.
pub fn zero_in(grammar: &str) -> Option<String> {
    if let Some(at) = grammar.find('\0') {
        return Some(format!("a NUL character at byte offset {at}"));
    }
    let mut place = Place::Rules;
    let mut chars = grammar.char_indices();
    while let Some((at, c)) = chars.next() {
        place = match (place, c) {
            (Place::Rules, '"') => Place::Text,
            (Place::Rules, '[') => Place::Class,
            (Place::Rules, '#') => Place::Comment,
            (Place::Comment, '\n') | (Place::Text, '"') | (Place::Class, ']') => Place::Rules,
            (Place::Text | Place::Class, '\\') => {
                let digits = match chars.next() {
                    Some((_, 'x')) => 2,
                    Some((_, 'u')) => 4,
                    Some((_, 'U')) => 8,
                    _ => 0,
                };
                let zeros = chars.as_str().chars().take(digits).filter(|digit| *digit == '0').count();
                // A class may have other characters.
                if matches!(place, Place::Text) && digits > 0 && zeros == digits {
                    return Some(format!("no token has the NUL character of the text at byte offset {at}"));
                }
                place
            }
            (place, _) => place,
        };
    }
    None
}

/// A part of a grammar.
#[derive(Clone, Copy)]
enum Place {
    /// Names and operators.
    Rules,
    /// `"..."`
    Text,
    /// `[...]`
    Class,
    /// `# ...`
    Comment,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_found_in_texts_and_not_elsewhere() {
        for grammar in [
            "root ::= \"a\"+\0 zzz",
            r#"root ::= "\x00""#,
            r#"root ::= "a\u0000b""#,
            r#"root ::= "\U00000000""#,
            r#"root ::= [a"] "\"\x00""#,
        ] {
            assert!(zero_in(grammar).is_some(), "{grammar}");
        }
        for grammar in [
            r#"root ::= [^"\\\x7F\x00-\x1F]+"#,
            r#"root ::= "\\x00""#,
            r#"root ::= "\x01\u0001\x0" # "\x00""#,
            r#"root ::= "a" [\x00] # \x00"#,
            "",
        ] {
            assert_eq!(zero_in(grammar), None, "{grammar}");
        }
    }
}
