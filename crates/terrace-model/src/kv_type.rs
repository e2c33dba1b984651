//! Types of the KV cache.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KvType {
    /// Two bytes.
    #[default]
    F16,
    /// 34 bytes for 32 values.
    #[serde(rename = "q8_0")]
    Q8_0,
    /// 18 bytes for 32 values.
    #[serde(rename = "q4_0")]
    Q4_0,
}

impl KvType {
    /// Bytes of so many values, each row a multiple of 32 of them.
    pub const fn bytes(self, values: u64) -> u64 {
        match self {
            Self::F16 => values.saturating_mul(2),
            Self::Q8_0 => values.div_ceil(32).saturating_mul(34),
            Self::Q4_0 => values.div_ceil(32).saturating_mul(18),
        }
    }
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::F16 => "f16",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
        })
    }
}

impl FromStr for KvType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "f16" => Ok(Self::F16),
            "q8_0" => Ok(Self::Q8_0),
            "q4_0" => Ok(Self::Q4_0),
            _ => Err(format!("`{text}` is no type of a KV cache: use f16, q8_0 or q4_0")),
        }
    }
}
