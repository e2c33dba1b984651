//! Counts of a layer's computations on devices and the CPU, of skipped ones by reason, and of where its
//! weights were found.

use super::{number::Count, shown};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;

/// Largest number of reasons in a file.
const MOST_REASONS: usize = 64;

/// Counts of a layer's computations on both sides, and of where its weights were found, since counting began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launches {
    /// A device computed some pairs (`parallel_hot_launches`).
    pub hot: u64,
    /// The CPU computed pairs beside it (`parallel_cold_launches`).
    pub cold: u64,
    /// No chosen expert had a copy (`parallel_hot_skips_zero`).
    pub hot_zero: u64,
    /// All chosen experts had one (`parallel_cold_skips_zero`).
    pub cold_zero: u64,
    /// The CPU computed pairs that a device has copies for (`parallel_fallbacks`).
    pub fallbacks: u64,
    /// Why, as far as it is known (`parallel_fallback_reasons`).
    pub reasons: BTreeMap<String, u64>,
    /// Bytes of experts sent to the device (`transferred_bytes`, which the original lacks).
    pub transferred: u64,
    /// Blocks of streamed experts that were in RAM when they were used (`blocks_in_ram`, which the
    /// original lacks, as the next two).
    pub in_ram: u64,
    /// Blocks that had to be read first, or were being read (`blocks_from_disk`).
    pub from_disk: u64,
    /// Bytes that were read (`bytes_from_disk`).
    pub bytes_from_disk: u64,
}

impl Launches {
    /// The counts that the original lacks, by their names in files.
    pub(super) const fn others(&self) -> [(&'static str, u64); 4] {
        [
            ("transferred_bytes", self.transferred),
            ("blocks_in_ram", self.in_ram),
            ("blocks_from_disk", self.from_disk),
            ("bytes_from_disk", self.bytes_from_disk),
        ]
    }

    /// The counts of both sides, by their names in files.
    pub(super) const fn named(&self) -> [(&'static str, u64); 5] {
        [
            ("parallel_hot_launches", self.hot),
            ("parallel_cold_launches", self.cold),
            ("parallel_hot_skips_zero", self.hot_zero),
            ("parallel_cold_skips_zero", self.cold_zero),
            ("parallel_fallbacks", self.fallbacks),
        ]
    }

    /// The count of this name.
    pub(super) fn named_mut(&mut self, name: &str) -> Option<&mut u64> {
        Some(match name {
            "parallel_hot_launches" => &mut self.hot,
            "parallel_cold_launches" => &mut self.cold,
            "parallel_hot_skips_zero" => &mut self.hot_zero,
            "parallel_cold_skips_zero" => &mut self.cold_zero,
            "parallel_fallbacks" => &mut self.fallbacks,
            "transferred_bytes" => &mut self.transferred,
            "blocks_in_ram" => &mut self.in_ram,
            "blocks_from_disk" => &mut self.from_disk,
            "bytes_from_disk" => &mut self.bytes_from_disk,
            _ => return None,
        })
    }
}

/// Counts by reason.
pub struct Reasons(pub BTreeMap<String, u64>);

impl<'de> Deserialize<'de> for Reasons {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(OfReasons)
    }
}

struct OfReasons;

impl<'de> Visitor<'de> for OfReasons {
    type Value = Reasons;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("counts by reason")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Reasons, A::Error> {
        let mut reasons = BTreeMap::new();
        while let Some((name, Count(count))) = map.next_entry::<String, Count>()? {
            reasons.insert(shown(&name), count);
            if reasons.len() > MOST_REASONS {
                return Err(A::Error::custom(format_args!("more than {MOST_REASONS} reasons")));
            }
        }
        Ok(Reasons(reasons))
    }
}
