//! Sizes in bytes, parsed and displayed with units (`512MiB`).

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;

/// Bytes of a page. Slots, direct reads and mappings are multiples of it.
pub const PAGE: u64 = 4096;

/// A number of bytes.
///
/// Parses `4096`, `512KiB`, `1.5GiB`, `2G` (binary, as users of `ulimit` and llama.cpp expect) and
/// `7GB` (decimal). Serialises as a plain number; deserialises from numbers and strings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// No bytes.
    pub const ZERO: Self = Self(0);

    /// `n` × 2^10 bytes.
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// `n` × 2^20 bytes.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// `n` × 2^30 bytes.
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }

    /// Returns the number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Returns the number as a length in this process's memory.
    ///
    /// # Panics
    /// On a 32-bit target, for sizes that exceed the address space.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).expect("a size in memory fits the address space")
    }

    /// Returns the difference, or zero if `other` is larger.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        /// A plain number, or a size with a unit.
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a number of bytes, or a size like \"512MiB\"")]
        enum Either {
            Number(u64),
            Text(String),
        }
        match Either::deserialize(d)? {
            Either::Number(bytes) => Ok(Self(bytes)),
            Either::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

/// Sums of sizes end at the largest: they are compared with what there is, and files may name any
/// size.
impl Add for ByteSize {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for ByteSize {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for ByteSize {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Sum for ByteSize {
    fn sum<I: Iterator<Item = Self>>(sizes: I) -> Self {
        sizes.fold(Self::ZERO, Add::add)
    }
}

/// The text for larger sizes, which would be rounded up to 2^64 bytes and not read back, in TiB.
const MOST_TIB: f64 = 16_777_215.99;

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            0..0x400 => return write!(f, "{} B", self.0),
            0x400..0x10_0000 => (1u64 << 10, "KiB"),
            0x10_0000..0x4000_0000 => (1 << 20, "MiB"),
            0x4000_0000..0x100_0000_0000 => (1 << 30, "GiB"),
            _ => (1 << 40, "TiB"),
        };
        // Two decimals are enough to read; exact values are written as numbers.
        let value = (self.0 as f64 / unit as f64).min(MOST_TIB);
        if self.0.is_multiple_of(unit) {
            write!(f, "{} {name}", self.0 / unit)
        } else {
            write!(f, "{value:.2} {name}")
        }
    }
}

/// Why a text is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseByteSizeError {
    /// The text does not start with a number.
    #[error("`{0}` is not a size: it must start with a number, as in 512MiB")]
    NoNumber(String),
    /// The unit is unknown.
    #[error("`{unit}` in `{text}` is not a unit: use B, KiB, MiB, GiB, TiB (or KB, MB, GB, TB)")]
    Unit {
        /// The whole text.
        text: String,
        /// The text after the number.
        unit: String,
    },
    /// More than 2^64 bytes, or negative.
    #[error("`{0}` is out of range for a size")]
    Range(String),
}

impl FromStr for ByteSize {
    type Err = ParseByteSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let unit = unit.trim();
        if number.is_empty() {
            return Err(ParseByteSizeError::NoNumber(text.into()));
        }
        let scale: u64 = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(ParseByteSizeError::Unit { text: text.into(), unit: unit.into() }),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(scale).map(Self).ok_or_else(|| ParseByteSizeError::Range(text.into()));
        }
        let value: f64 = number.parse().map_err(|_| ParseByteSizeError::NoNumber(text.into()))?;
        let bytes = value * scale as f64;
        // 2^64 is exact as f64; anything below converts without saturating.
        if !(0.0..18_446_744_073_709_551_616.0).contains(&bytes) {
            return Err(ParseByteSizeError::Range(text.into()));
        }
        Ok(Self(bytes as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, bytes) in [
            ("4096", 4096),
            ("512KiB", 512 << 10),
            ("512 MiB", 512 << 20),
            ("1.5GiB", 3 << 29),
            ("2g", 2 << 30),
            ("7GB", 7_000_000_000),
            ("0", 0),
        ] {
            assert_eq!(text.parse::<ByteSize>(), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn refuses_with_the_reason() {
        for text in ["", "GiB", "-1", "1.2.3", "12parsecs", "99999999999GiB", "1e3"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
        let unit = "3 qux".parse::<ByteSize>().unwrap_err().to_string();
        assert!(unit.contains("qux") && unit.contains("GiB"), "{unit}");
    }

    #[test]
    fn display_reads_back() {
        for bytes in [0, 1, 1023, 1024, 1 << 20, 3 << 30, 5 << 40] {
            let shown = ByteSize(bytes).to_string();
            assert_eq!(shown.parse::<ByteSize>(), Ok(ByteSize(bytes)), "{shown}");
        }
        // Rounded, but never to more than there can be.
        let shown = ByteSize(u64::MAX).to_string();
        assert!(shown.parse::<ByteSize>().is_ok(), "{shown}");
    }

    #[test]
    fn sums_of_sizes_from_files_end_at_the_largest() {
        let (most, some) = (ByteSize(u64::MAX), ByteSize::kib(1));
        assert_eq!(most + some, most);
        assert_eq!([most, some, most].into_iter().sum::<ByteSize>(), most);
        let mut sum = most;
        sum += some;
        assert_eq!(sum, most);
    }
}
