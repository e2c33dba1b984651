//! Types of the keys and values in the KV cache.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The element type of keys or values: those that llama.cpp takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
pub enum KvType {
    /// Four bytes per value.
    F32,
    /// Two bytes per value.
    #[default]
    F16,
    /// Two bytes per value, with the range of F32 and 8 bits of precision.
    Bf16,
    /// 34 bytes for 32 values.
    Q8_0,
    /// 24 bytes for 32 values.
    Q5_1,
    /// 22 bytes for 32 values.
    Q5_0,
    /// 20 bytes for 32 values.
    Q4_1,
    /// 18 bytes for 32 values.
    Iq4Nl,
    /// 18 bytes for 32 values.
    Q4_0,
}

impl KvType {
    /// All types, those of most bytes first.
    pub const ALL: [Self; 9] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q8_0,
        Self::Q5_1,
        Self::Q5_0,
        Self::Q4_1,
        Self::Iq4Nl,
        Self::Q4_0,
    ];

    /// Values in a block of each quantised type.
    pub const BLOCK: u64 = 32;

    /// The name, as llama.cpp spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "q8_0",
            Self::Q5_1 => "q5_1",
            Self::Q5_0 => "q5_0",
            Self::Q4_1 => "q4_1",
            Self::Iq4Nl => "iq4_nl",
            Self::Q4_0 => "q4_0",
        }
    }

    /// Returns true if values are stored in blocks of [`KvType::BLOCK`].
    pub const fn is_quantised(self) -> bool {
        !matches!(self, Self::F32 | Self::F16 | Self::Bf16)
    }

    /// Returns true if values are stored less precisely than in [`KvType::F16`].
    pub const fn is_lossy(self) -> bool {
        !matches!(self, Self::F32 | Self::F16)
    }

    /// Returns the bytes of `values` values, rounded up to whole blocks of 32 where the type has
    /// them.
    pub const fn bytes(self, values: u64) -> u64 {
        let block = match self {
            Self::F32 => return values.saturating_mul(4),
            Self::F16 | Self::Bf16 => return values.saturating_mul(2),
            Self::Q8_0 => 34,
            Self::Q5_1 => 24,
            Self::Q5_0 => 22,
            Self::Q4_1 => 20,
            Self::Iq4Nl | Self::Q4_0 => 18,
        };
        values.div_ceil(Self::BLOCK).saturating_mul(block)
    }
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for KvType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|ty| ty.name() == text).ok_or_else(|| {
            let [others @ .., last] = Self::ALL.map(Self::name);
            format!("`{text}` is not a KV cache type: use {} or {last}", others.join(", "))
        })
    }
}

impl From<KvType> for &'static str {
    fn from(ty: KvType) -> Self {
        ty.name()
    }
}

impl TryFrom<String> for KvType {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
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
    /// The types that stock uses unless it is told others.
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
        for ty in KvType::ALL {
            assert_eq!(ty.name().parse(), Ok(ty));
            assert_eq!(serde_json::to_string(&ty).unwrap(), format!("\"{ty}\""));
        }
        for wrong in ["", "q8_0/", "q8_0/x", "f16/f16/f16", "F16", "q6_k"] {
            assert!(wrong.parse::<KvTypes>().is_err(), "{wrong}");
        }
    }
}
