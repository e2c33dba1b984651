//! The policies by name: one table, from which everything that lists them is made.

use super::hot_list::Static;
use super::lfru::Lfru;
use super::lfu::Lfu;
use super::lru::Lru;
use super::per_layer::PerLayer;
use super::{HotList, Policy, Population};
use crate::choice::ParseChoiceError;
use crate::error::StoreError;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// `lru, lfru or static:FILE` of names.
macro_rules! choices {
    ($first:literal $(, $other:literal)*) => { concat!($first $(, ", ", $other)*, " or static:FILE") };
}

macro_rules! kinds {
    ($($(#[$meta:meta])* $kind:ident = $name:literal, $make:expr;)+) => {
        /// The policies.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub enum PolicyKind {
            $($(#[$meta])* $kind,)+
            /// The experts of the list in this file are evicted last ([`HotList`] tells how it is written), the rest by LRU.
            Static(PathBuf),
        }

        impl PolicyKind {
            /// Those that need no file.
            pub const SELF_CONTAINED: &[Self] = &[$(Self::$kind),+];
            /// What a kind is read from, for people.
            pub const CHOICES: &str = choices!($($name),+);

            /// Makes a policy that has seen nothing.
            ///
            /// # Errors
            /// [`StoreError::HotList`] if the file of `static` cannot be read or is no such list.
            pub(crate) fn build(&self, population: &Population) -> Result<Box<dyn Policy>, StoreError> {
                Ok(match self {
                    $(Self::$kind => {
                        let make: fn(&Population) -> _ = $make;
                        Box::new(make(population))
                    })+
                    Self::Static(path) => Box::new(Static::new(population, &HotList::read(path)?)),
                })
            }
        }

        impl fmt::Display for PolicyKind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$kind => f.pad($name),)+
                    Self::Static(path) => f.pad(&format!("static:{}", path.display())),
                }
            }
        }

        impl FromStr for PolicyKind {
            type Err = ParseChoiceError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let wrong = || ParseChoiceError {
                    text: text.into(),
                    setting: "the cache policy",
                    choices: Self::CHOICES,
                };
                match text {
                    $($name => Ok(Self::$kind),)+
                    _ => {
                        let path = text.strip_prefix("static:").filter(|path| !path.is_empty());
                        path.map(|path| Self::Static(path.into())).ok_or_else(wrong)
                    }
                }
            }
        }
    };
}

kinds! {
    /// The least recently used block is evicted first.
    #[default]
    Lru = "lru", |population| Lru::new(population.blocks.len());
    /// The block with the fewest uses is evicted first, where older uses count less.
    Lfru = "lfru", Lfru::new;
    /// The block with the fewest uses since the start is evicted first.
    Lfu = "lfu", |population| Lfu::new(population.blocks.len());
    /// Each layer has its share of the slots, by LRU.
    PerLayer = "per-layer", PerLayer::new;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choices_are_in_a_sentence() {
        let names: Vec<String> = PolicyKind::SELF_CONTAINED.iter().map(ToString::to_string).collect();
        assert_eq!(PolicyKind::CHOICES, names.join(", ") + " or static:FILE");
    }

    #[test]
    fn kinds_read_back() {
        for kind in PolicyKind::SELF_CONTAINED.iter().cloned().chain([PolicyKind::Static("a b/list".into())])
        {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        for wrong in ["", "LRU", "static", "static:", "belady"] {
            let message = wrong.parse::<PolicyKind>().unwrap_err().to_string();
            assert!(message.contains(&format!("`{wrong}`")) && message.contains("per-layer"), "{message}");
        }
    }
}
