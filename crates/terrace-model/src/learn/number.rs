//! Numbers of learn files: counts, indices and times.

use super::MOST_INDEX;
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use std::fmt;

/// From here on, not every whole number is a 64-bit float.
const WHOLE: f64 = 9_007_199_254_740_992.0;

/// A count; some writers have counts as floats, like `12.0`.
pub struct Count(pub u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(OfCount)
    }
}

struct OfCount;

impl Visitor<'_> for OfCount {
    type Value = Count;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a count")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Count, E> {
        Ok(Count(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Count, E> {
        if (0.0..WHOLE).contains(&value) && value.fract() == 0.0 {
            // In range, and whole.
            Ok(Count(value as u64))
        } else {
            Err(E::invalid_value(Unexpected::Float(value), &self))
        }
    }
}

/// The number of a layer or an expert, or a number of experts.
pub struct Index(pub u32);

impl<'de> Deserialize<'de> for Index {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Count(value) = Count::deserialize(from)?;
        let index = u32::try_from(value).ok().filter(|_| value <= MOST_INDEX);
        index.map(Self).ok_or_else(|| D::Error::custom(format_args!("{value} is more than {MOST_INDEX}")))
    }
}

/// A time, or a mean; `None` where the writer had no finite number.
pub struct Mean(pub Option<f64>);

impl<'de> Deserialize<'de> for Mean {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Option::<f64>::deserialize(from)?;
        Ok(Self(value.filter(|value| value.is_finite() && *value >= 0.0)))
    }
}
