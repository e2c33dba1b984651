//! Lists of `[expert, count]`.

use super::number::{Count, Index};
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;

/// Counts by expert. Zeros are left out.
#[derive(Default)]
pub struct Pairs(pub BTreeMap<u32, u64>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(OfPairs)
    }
}

struct OfPairs;

impl<'de> Visitor<'de> for OfPairs {
    type Value = Pairs;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of [expert, count]")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Pairs, A::Error> {
        let mut pairs = BTreeMap::new();
        while let Some((Index(expert), Count(count))) = list.next_element()? {
            if pairs.insert(expert, count).is_some() {
                return Err(A::Error::custom(format_args!("expert {expert} is listed twice")));
            }
        }
        pairs.retain(|_, count| *count > 0);
        Ok(Pairs(pairs))
    }
}
