//! Types of the keys and values in the KV cache.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The element type of keys or values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KvType {
    /// Two bytes per value.
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
    /// Values in a block of each quantised type.
    pub const BLOCK: u64 = 32;

    /// Returns the bytes of `values` values, rounded up to whole blocks of 32 where the type has
    /// them.
    pub const fn bytes(self, values: u64) -> u64 {
        match self {
            Self::F16 => values.saturating_mul(2),
            Self::Q8_0 => values.div_ceil(Self::BLOCK).saturating_mul(34),
            Self::Q4_0 => values.div_ceil(Self::BLOCK).saturating_mul(18),
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
            _ => Err(format!("`{text}` is not a KV cache type: use f16, q8_0 or q4_0")),
        }
    }
}

/// The types of keys and of values. Written as one type if they are the same, otherwise as
/// `KEYS/VALUES`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct KvTypes {
    /// The type of the keys.
    pub keys: KvType,
    /// The type of the values.
    pub values: KvType,
}

impl KvTypes {
    /// The types that stock uses: exact.
    pub const F16: Self = Self::both(KvType::F16);

    /// Keys and values in the same type.
    pub const fn both(ty: KvType) -> Self {
        Self { keys: ty, values: ty }
    }
}

impl From<KvType> for KvTypes {
    fn from(ty: KvType) -> Self {
        Self::both(ty)
    }
}

impl fmt::Display for KvTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.keys == self.values {
            return self.keys.fmt(f);
        }
        f.pad(&format!("{}/{}", self.keys, self.values))
    }
}

impl FromStr for KvTypes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            None => text.parse().map(Self::both),
            Some((keys, values)) => Ok(Self { keys: keys.parse()?, values: values.parse()? }),
        }
    }
}

impl From<KvTypes> for String {
    fn from(types: KvTypes) -> Self {
        types.to_string()
    }
}

impl TryFrom<String> for KvTypes {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_read_back() {
        let both = KvTypes::both(KvType::Q8_0);
        let apart = KvTypes { keys: KvType::Q8_0, values: KvType::Q4_0 };
        for (types, text) in [(both, "q8_0"), (apart, "q8_0/q4_0"), (KvTypes::F16, "f16")] {
            assert_eq!(types.to_string(), text);
            assert_eq!(text.parse(), Ok(types));
        }
        for wrong in ["", "q8_0/", "q8_0/x", "f16/f16/f16"] {
            assert!(wrong.parse::<KvTypes>().is_err(), "{wrong}");
        }
    }
}
