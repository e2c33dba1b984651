//! The parts of a GGUF tensor name: `blk.3.ffn_up_exps.weight` is layer `3`, role `ffn_up_exps`,
//! kind `weight`.

/// A tensor name split into its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a> {
    /// The digits of `blk.N.`, as written.
    pub layer: Option<&'a str>,
    /// The part between the layer and the kind.
    pub role: &'a str,
    /// The part after the last dot: `weight`, `bias`, `scale`; empty if there is none.
    pub kind: &'a str,
}

impl<'a> Name<'a> {
    /// Splits a tensor's name.
    pub fn of(name: &'a str) -> Self {
        let (layer, rest) = split_layer(name).map_or((None, name), |(layer, rest)| (Some(layer), rest));
        let (role, kind) = rest.rsplit_once('.').unwrap_or((rest, ""));
        Self { layer, role, kind }
    }

    /// Returns whether the tensor holds one expert alone (`blk.0.ffn_gate.3.weight`), as files of early 2024 had
    /// them.
    pub fn is_lone_expert(&self) -> bool {
        let expert = self
            .role
            .rsplit_once('.')
            .filter(|(role, _)| matches!(*role, "ffn_gate" | "ffn_up" | "ffn_down"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        self.layer.is_some() && expert.is_some_and(|(_, number)| digits(number))
    }
}

/// Splits `blk.N.REST` into the digits `N` and `REST`; `None` for names of another form.
pub fn split_layer(name: &str) -> Option<(&str, &str)> {
    let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    (!layer.is_empty() && layer.bytes().all(|b| b.is_ascii_digit())).then_some((layer, rest))
}

/// Returns text from a file made fit for one line: what a terminal acts on instead of showing it is
/// escaped (control characters, marks that turn the direction of the text, line separators,
/// invisible characters), everything else stays readable.
pub fn printable(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || is_unseen(c) { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

/// Returns whether a character that is not a control character changes how others are shown, or is not
/// seen. The joiners (U+200C, U+200D) are part of how words are written.
const fn is_unseen(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns why a file cannot be parsed, [`printable`] and in at most 500 characters: parsers repeat the value
/// that they did not expect, however long it is.
pub fn parse_reason(error: &impl std::fmt::Display) -> String {
    excerpt(&error.to_string(), 500)
}

/// Returns the beginning of such text, [`printable`], with what was left out counted: names from
/// files and servers can have any length. `most` is the number of characters shown.
pub fn excerpt(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => printable(text),
        Some((end, _)) => format!("{}... ({} bytes)", printable(&text[..end]), text.len()),
    }
}

/// Lists names of a file or a server: the first `most` of them as [`excerpt`]s, and the number of
/// the others.
pub fn listed<T: AsRef<str>>(names: &[T], most: usize) -> String {
    const NAME: usize = 120;
    let shown: Vec<String> = names.iter().take(most).map(|name| excerpt(name.as_ref(), NAME)).collect();
    match names.len().saturating_sub(most) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("é\n\u{1b}[2Jx\u{9b}"), "é\\n\\u{1b}[2Jx\\u{9b}");
        assert_eq!(printable("a\u{202e}fugg.b\u{2066}\u{2028}"), "a\\u{202e}fugg.b\\u{2066}\\u{2028}");
        assert_eq!(printable("漢字 क्‍ष \u{200d}"), "漢字 क्‍ष \u{200d}");
    }

    #[test]
    fn long_names_and_long_lists_are_cut() {
        assert_eq!(excerpt("éé", 2), "éé");
        assert_eq!(excerpt("ééé\n", 2), "éé... (7 bytes)");
        assert_eq!(listed(&["a", "b"], 2), "a, b");
        assert_eq!(listed(&["a\u{202e}", "b", "c", "d"], 2), "a\\u{202e}, b and 2 more");
    }

    #[test]
    fn lone_experts() {
        assert!(Name::of("blk.0.ffn_gate.3.weight").is_lone_expert());
        assert!(Name::of("blk.31.ffn_down.7.scale").is_lone_expert());
        for name in
            ["blk.0.ffn_gate_exps.weight", "blk.0.ffn_gate.weight", "ffn_gate.3.weight", "blk.0.x.3.weight"]
        {
            assert!(!Name::of(name).is_lone_expert(), "{name}");
        }
    }

    #[test]
    fn parts() {
        let name = Name::of("blk.12.indexer.proj.weight");
        assert_eq!((name.layer, name.role, name.kind), (Some("12"), "indexer.proj", "weight"));
        let name = Name::of("output.weight");
        assert_eq!((name.layer, name.role, name.kind), (None, "output", "weight"));
        assert_eq!(Name::of("blk.x.w").layer, None);
        assert_eq!(Name::of("v.blk.3.w").layer, None);
        assert_eq!(Name::of("bare").kind, "");
    }
}
