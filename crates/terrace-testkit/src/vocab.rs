//! A byte-level BPE vocabulary: any text is a prompt, and common English has tokens of several
//! bytes.

use terrace_ggml::gguf::write::{Header, HeaderError};

const MERGES: &[(&str, &str)] = &[
    ("Ġ", "t"),
    ("h", "e"),
    ("i", "n"),
    ("r", "e"),
    ("o", "n"),
    ("Ġt", "he"),
    ("e", "r"),
    ("Ġ", "a"),
    ("Ġ", "s"),
    ("a", "t"),
    ("Ġ", "o"),
    ("n", "d"),
    ("Ġ", "w"),
    ("o", "r"),
    ("e", "s"),
    ("i", "s"),
    ("in", "g"),
    ("e", "n"),
    ("Ġo", "f"),
    ("Ġa", "nd"),
    ("i", "t"),
    ("Ġ", "c"),
    ("Ġ", "b"),
    ("e", "d"),
    ("a", "l"),
    ("Ġt", "o"),
    ("Ġ", "f"),
    ("Ġ", "in"),
    ("a", "n"),
    ("o", "u"),
    ("l", "l"),
    ("Ġ", "p"),
    ("Ġ", "m"),
    ("a", "r"),
    ("i", "on"),
    ("Ġ", "d"),
];

const CHAT_TEMPLATE: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + \
    message['content'] + '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}\
    {{ '<|im_start|>assistant\\n' }}{% endif %}";

/// Control tokens, after bytes and merges: end of text, and the marks of the chat template.
const CONTROL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];

const NORMAL: i32 = 1;
const CONTROL_TYPE: i32 = 3;

/// Tokens and merges.
pub(crate) struct Vocabulary {
    tokens: Vec<String>,
}

impl Vocabulary {
    /// The first control token's id.
    pub const FIRST_CONTROL: u32 = 256 + MERGES.len() as u32;

    /// Returns whether a token ends or frames text.
    pub fn is_control(token: u64) -> bool {
        let first = u64::from(Self::FIRST_CONTROL);
        (first..first + CONTROL.len() as u64).contains(&token)
    }

    /// Makes a vocabulary of `size` tokens, padded with made-up words.
    pub fn of(size: u32) -> Self {
        let mut tokens: Vec<String> = (0..=255).map(|byte| byte_char(byte).to_string()).collect();
        tokens.extend(MERGES.iter().map(|(a, b)| format!("{a}{b}")));
        tokens.extend(CONTROL.map(str::to_owned));
        tokens.extend((tokens.len()..size as usize).map(|id| format!("Ġw{id}")));
        Self { tokens }
    }

    /// Writes the tokenizer's metadata.
    pub fn describe(self, header: &mut Header) -> Result<(), HeaderError> {
        let kind = |id| if Self::is_control(id) { CONTROL_TYPE } else { NORMAL };
        let kinds: Vec<i32> = (0..self.tokens.len() as u64).map(kind).collect();
        let merges: Vec<String> = MERGES.iter().map(|(a, b)| format!("{a} {b}")).collect();
        header.set("tokenizer.ggml.model", "gpt2")?;
        header.set("tokenizer.ggml.pre", "default")?;
        header.set("tokenizer.ggml.tokens", self.tokens)?;
        header.set("tokenizer.ggml.token_type", kinds)?;
        header.set("tokenizer.ggml.merges", merges)?;
        header.set("tokenizer.ggml.bos_token_id", Self::FIRST_CONTROL)?;
        header.set("tokenizer.ggml.eos_token_id", Self::FIRST_CONTROL)?;
        header.set("tokenizer.ggml.eot_token_id", Self::FIRST_CONTROL + 2)?;
        header.set("tokenizer.ggml.add_bos_token", false)?;
        header.set("tokenizer.chat_template", CHAT_TEMPLATE)
    }
}

/// Maps a byte to a printable character as GPT-2 does: printable bytes to themselves, the others in
/// order to the characters from U+0100 on.
fn byte_char(byte: u8) -> char {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        return char::from(byte);
    }
    let rank = (0..byte).filter(|&b| !printable(b)).count() as u32;
    char::from_u32(0x100 + rank).expect("U+0100 to U+0143 are characters")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn tokens_are_distinct_and_merges_make_tokens() {
        let vocabulary = Vocabulary::of(1000);
        assert_eq!(vocabulary.tokens.len(), 1000);
        let set: HashSet<&String> = vocabulary.tokens.iter().collect();
        assert_eq!(set.len(), 1000);
        for (a, b) in MERGES {
            for part in [a.to_string(), b.to_string(), format!("{a}{b}")] {
                assert!(set.contains(&part), "{part}");
            }
        }
        assert_eq!(vocabulary.tokens[usize::from(b' ')], "Ġ");
        const { assert!(Vocabulary::FIRST_CONTROL + 3 < crate::Spec::MIN_VOCAB) };
    }
}
