//! Answers that are a call of a tool or JSON by a schema. llama.cpp knows either one: with a schema it forgets
//! the tools. Here both are applied, and their grammars joined.

/// The grammar of what one of two grammars allows. Both have a rule `root`.
pub(super) fn either(call: &str, json: &str) -> String {
    let (call, json) = (renamed(call, "call-"), renamed(json, "json-"));
    format!("root ::= call-root | json-root\n{call}\n{json}\n")
}

/// A grammar whose rules' names begin with `prefix`.
fn renamed(grammar: &str, prefix: &str) -> String {
    let mut out = String::with_capacity(grammar.len() + grammar.len() / 2);
    let mut rest = grammar;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => quoted(rest, '"'),
            '[' => quoted(rest, ']'),
            // A token.
            '<' => rest.find('>').map_or(rest.len(), |end| end + 1),
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '{' => rest.find('}').map_or(rest.len(), |end| end + 1),
            c if is_of_name(c) => {
                out.push_str(prefix);
                rest.find(|c| !is_of_name(c)).unwrap_or(rest.len())
            }
            c => c.len_utf8(),
        };
        out.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    out
}

const fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-'
}

/// Length of a text or a class, which begins with one character and ends with another.
fn quoted(text: &str, end: char) -> usize {
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            c if c == end => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_ggml::common::check_grammar;

    #[test]
    fn rules_get_other_names_and_nothing_else_does() {
        let grammar = r#"root ::= a-1{2,3} "root \" a-1" [a\]-z] <think> <[7]> # root
a-1 ::= "x" | [^"root] .*"#;
        let expected = r#"root ::= call-root | json-root
call-root ::= call-a-1{2,3} "root \" a-1" [a\]-z] <think> <[7]> # root
call-a-1 ::= "x" | [^"root] .*
json-root ::= "j"
"#;
        assert_eq!(either(grammar, r#"root ::= "j""#), expected);
    }

    #[test]
    fn both_allow_what_they_did() {
        let call = "root ::= \"<call>\" item+\nitem ::= [a-c]{1,4} \"\\\"\"";
        let json = "root ::= \"{\" item? \"}\"\nitem ::= \"\\\"x\\\"\"";
        check_grammar(&either(call, json)).unwrap();
    }
}
