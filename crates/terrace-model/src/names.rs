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

/// Returns text from a file made fit for one line: control characters are escaped, everything else
/// stays readable.
pub fn printable(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("é\n\u{1b}[2Jx\u{9b}"), "é\\n\\u{1b}[2Jx\\u{9b}");
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
