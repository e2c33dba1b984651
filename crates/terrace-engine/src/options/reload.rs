//! Tensors that change while the model is loaded.

use std::fmt;
use std::str::FromStr;

/// What becomes of the keys and values in the context when tensors are replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnReload {
    /// They are computed anew, with the new weights, where they are needed.
    #[default]
    Clear,
    /// They stay as the old weights made them.
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
    /// Whether the model's files may be written to while it is loaded: nothing is then computed from a mapping of them.
    pub allowed: bool,
    /// What becomes of the context when tensors are replaced.
    pub contexts: OnReload,
}
