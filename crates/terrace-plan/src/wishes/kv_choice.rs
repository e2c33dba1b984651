//! Types of keys and values to choose from.

use std::fmt;
use std::str::FromStr;
use terrace_model::{KvType, KvTypes};

/// The types that may be chosen, the exact one first.
const AUTO: [KvTypes; 3] = [KvTypes::F16, KvTypes::both(KvType::Q8_0), KvTypes::both(KvType::Q4_0)];

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvChoice {
    /// In these types. Anything but [`KvTypes::F16`] is lossy.
    Types(KvTypes),
    /// Both in the largest type under which the model fits; a smaller one if it is streamed, and that makes it faster.
    Auto,
}

impl KvChoice {
    /// The types that may be chosen, the largest first.
    pub fn types(&self) -> &[KvTypes] {
        match self {
            Self::Types(types) => std::slice::from_ref(types),
            Self::Auto => &AUTO,
        }
    }
}

impl Default for KvChoice {
    fn default() -> Self {
        Self::Types(KvTypes::F16)
    }
}

impl FromStr for KvChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => text.parse().map(Self::Types).map_err(|error: String| error + ", or auto"),
        }
    }
}

impl fmt::Display for KvChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Types(types) => types.fmt(f),
        }
    }
}
