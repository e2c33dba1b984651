//! How much of something there may be.

use crate::bytesize::{ByteSize, ParseByteSizeError};
use std::fmt;
use std::str::FromStr;

/// What a user may say of an amount of memory: `auto`, `off`, or a size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SizeChoice {
    /// As the program finds best.
    #[default]
    Auto,
    /// Nothing.
    Off,
    /// This many bytes.
    Bytes(ByteSize),
}

impl FromStr for SizeChoice {
    type Err = ParseByteSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            size => size.parse().map(Self::Bytes),
        }
    }
}

impl fmt::Display for SizeChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Off => f.pad("off"),
            Self::Bytes(bytes) => write!(f, "{bytes}"),
        }
    }
}
