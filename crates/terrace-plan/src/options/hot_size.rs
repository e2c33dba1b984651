//! Memory for copies of experts.

use std::fmt;
use std::str::FromStr;
use terrace_model::{ByteSize, ParseByteSizeError};

/// Memory of a device for copies of experts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HotSize {
    /// The planner chooses.
    #[default]
    Auto,
    /// None: the device holds no copies.
    Off,
    /// All that is free after the context and the dense weights of layers, less the reserve.
    /// Experts are then on devices as copies only.
    Max,
    /// The same, but these bytes stay free, whatever the reserve for layers is.
    MaxBut(ByteSize),
    /// This many bytes, which layers then cannot use.
    Bytes(ByteSize),
}

impl HotSize {
    /// Returns whether the user gave the size, instead of leaving it to the planner.
    pub const fn is_given(self) -> bool {
        matches!(self, Self::Max | Self::MaxBut(_) | Self::Bytes(_))
    }

    /// Returns whether copies get all that is left.
    pub const fn is_max(self) -> bool {
        matches!(self, Self::Max | Self::MaxBut(_))
    }
}

impl FromStr for HotSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |error: ParseByteSizeError| format!("{error}, or `max`, `max-SIZE`, `off` or `auto`");
        match (text, text.strip_prefix("max-")) {
            ("auto", _) => Ok(Self::Auto),
            ("off", _) => Ok(Self::Off),
            ("max", _) => Ok(Self::Max),
            (_, Some(free)) => free.parse().map(Self::MaxBut).map_err(wrong),
            (size, None) => size.parse().map(Self::Bytes).map_err(wrong),
        }
    }
}

impl fmt::Display for HotSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Off => f.pad("off"),
            Self::Max => f.pad("max"),
            Self::MaxBut(free) => f.pad(&format!("max-{free}")),
            Self::Bytes(bytes) => bytes.fmt(f),
        }
    }
}
