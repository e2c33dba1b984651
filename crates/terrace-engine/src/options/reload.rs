//! Tensors that change while the model is loaded.

use std::fmt;
use std::str::FromStr;

/// The keys and values in the context after tensors are replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnReload {
    /// They are computed again with the new weights where they are needed.
    #[default]
    Clear,
    /// They stay as the old weights computed them.
    Keep,
}

impl FromStr for OnReload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "clear" => Ok(Self::Clear),
            "keep" => Ok(Self::Keep),
            _ => Err(format!("`{text}` is neither clear nor keep")),
        }
    }
}

impl fmt::Display for OnReload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Clear => "clear",
            Self::Keep => "keep",
        })
    }
}

/// Tensors that change while the model is loaded.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReloadOptions {
    /// True if the model's files may be written to while it is loaded. If so, nothing is computed
    /// from a mapping of them.
    pub allowed: bool,
    /// The context after tensors are replaced.
    pub contexts: OnReload,
}
