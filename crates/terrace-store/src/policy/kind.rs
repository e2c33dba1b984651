//! The policies by name.

use super::hot_list::Static;
use super::lfru::Lfru;
use super::lfu::Lfu;
use super::per_layer::PerLayer;
use super::{HotList, Lru, Policy, Population};
use crate::choice::ParseChoiceError;
use crate::error::StoreError;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The policies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PolicyKind {
    /// The least recently used block goes first.
    #[default]
    Lru,
    /// The block with the fewest uses goes first, where older uses count less.
    Lfru,
    /// The block with the fewest uses since the start goes first.
    Lfu,
    /// Each layer has its share of the slots, by LRU.
    PerLayer,
    /// The experts of the list in this file go last ([`HotList`] tells how it is written), the rest by LRU.
    Static(PathBuf),
}

/// What [`PolicyKind`] is read from.
const CHOICES: &str = "lru, lfru, lfu, per-layer or static:FILE";

impl PolicyKind {
    /// Those that need no file.
    pub const SELF_CONTAINED: [Self; 4] = [Self::Lru, Self::Lfru, Self::Lfu, Self::PerLayer];

    /// A fresh policy.
    ///
    /// # Errors
    /// [`StoreError::HotList`] if the file of `static` cannot be read or is no such list.
    pub(crate) fn build(&self, population: &Population) -> Result<Box<dyn Policy>, StoreError> {
        let blocks = population.blocks.len();
        Ok(match self {
            Self::Lru => Box::new(Lru::new(blocks)),
            Self::Lfru => Box::new(Lfru::new(population)),
            Self::Lfu => Box::new(Lfu::new(blocks)),
            Self::PerLayer => Box::new(PerLayer::new(population)),
            Self::Static(path) => Box::new(Static::new(population, &HotList::read(path)?)),
        })
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lru => f.pad("lru"),
            Self::Lfru => f.pad("lfru"),
            Self::Lfu => f.pad("lfu"),
            Self::PerLayer => f.pad("per-layer"),
            Self::Static(path) => f.pad(&format!("static:{}", path.display())),
        }
    }
}

impl FromStr for PolicyKind {
    type Err = ParseChoiceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "lru" => Self::Lru,
            "lfru" => Self::Lfru,
            "lfu" => Self::Lfu,
            "per-layer" => Self::PerLayer,
            _ => match text.strip_prefix("static:").filter(|path| !path.is_empty()) {
                Some(path) => Self::Static(path.into()),
                None => {
                    return Err(ParseChoiceError {
                        text: text.into(),
                        setting: "the cache policy",
                        choices: CHOICES,
                    });
                }
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_read_back() {
        for kind in PolicyKind::SELF_CONTAINED.into_iter().chain([PolicyKind::Static("a b/list".into())]) {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        for wrong in ["", "LRU", "static", "static:", "belady"] {
            let message = wrong.parse::<PolicyKind>().unwrap_err().to_string();
            assert!(message.contains(&format!("`{wrong}`")) && message.contains("per-layer"), "{message}");
        }
    }
}
