//! Combinations of the embeddings of a text's tokens.

use llama_cpp_sys_2 as sys;
use std::fmt;
use std::str::FromStr;

/// Combination of the embeddings of a text's tokens, under llama.cpp's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Each token keeps its own.
    None,
    Mean,
    /// The first token's.
    Cls,
    /// The last token's.
    Last,
    /// No embedding: scores by the model's classification head.
    Rank,
}

impl Pooling {
    const NAMES: [(&'static str, Self); 5] = [
        ("none", Self::None),
        ("mean", Self::Mean),
        ("cls", Self::Cls),
        ("last", Self::Last),
        ("rank", Self::Rank),
    ];

    /// The pooling of this number in a model's metadata.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::NAMES.get(usize::try_from(number).ok()?).map(|(_, pooling)| *pooling)
    }

    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }

    pub(super) const fn as_raw(self) -> sys::llama_pooling_type {
        match self {
            Self::None => sys::LLAMA_POOLING_TYPE_NONE,
            Self::Mean => sys::LLAMA_POOLING_TYPE_MEAN,
            Self::Cls => sys::LLAMA_POOLING_TYPE_CLS,
            Self::Last => sys::LLAMA_POOLING_TYPE_LAST,
            Self::Rank => sys::LLAMA_POOLING_TYPE_RANK,
        }
    }
}

impl FromStr for Pooling {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().find(|(name, _)| *name == text);
        found
            .map(|(_, pooling)| *pooling)
            .ok_or_else(|| format!("`{text}` is none of none, mean, cls, last, rank"))
    }
}

impl fmt::Display for Pooling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_llama_cpps() {
        for (number, (name, pooling)) in (0..).zip(Pooling::NAMES) {
            assert_eq!(name.parse(), Ok(pooling));
            assert_eq!(pooling.to_string(), name);
            assert_eq!(Pooling::from_number(number), Some(pooling));
            assert_eq!(u64::try_from(pooling.as_raw()), Ok(number));
        }
        assert_eq!(Pooling::from_number(5), None);
        assert!("max".parse::<Pooling>().is_err());
    }
}
