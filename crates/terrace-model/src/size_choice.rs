//! An amount of memory as a user gives it.

use crate::bytesize::{ByteSize, ParseByteSizeError};
use std::fmt;
use std::str::FromStr;

/// An amount of memory as a user gives it: `auto`, `off`, or a size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SizeChoice {
    /// The program chooses.
    #[default]
    Auto,
    /// No memory: whatever it is for is switched off.
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
