//! The choice of the types of keys and values.

use std::fmt;
use std::str::FromStr;
use terrace_model::{KvType, KvTypes};

/// The types that `auto` chooses from, the exact one first.
const AUTO: [KvTypes; 3] = [KvTypes::F16, KvTypes::both(KvType::Q8_0), KvTypes::both(KvType::Q4_0)];

/// Which types keys and values are stored in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvChoice {
    /// The given types. All but F32 and F16 are lossy.
    Types(KvTypes),
    /// The largest type, for both, with which the model fits. If the model streams, a smaller type
    /// is chosen where it makes decoding clearly faster.
    Auto,
}

impl KvChoice {
    /// Returns the types that may be chosen, the largest first.
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
