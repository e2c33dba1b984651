//! The policies by name: one table, from which all lists of policies are made.

use super::auto::Auto;
use super::hot_list::Static;
use super::lfru::Lfru;
use super::lfu::Lfu;
use super::lru::Lru;
use super::per_layer::PerLayer;
use super::{HotList, Policy, Population};
use crate::error::StoreError;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Text that is not a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a cache policy: use {choices}", choices = PolicyKind::CHOICES)]
pub struct ParsePolicyError(String);

/// Makes a list such as `lru, lfru or static:FILE`.
macro_rules! choices {
    ($first:literal $(, $other:literal)*) => { concat!($first $(, ", ", $other)*, " or static:FILE") };
}

macro_rules! kinds {
    ($($(#[$meta:meta])* $kind:ident = $name:literal, $make:expr;)+) => {
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub enum PolicyKind {
            $($(#[$meta])* $kind,)+
            /// The experts listed in this file (see [`HotList`]) are evicted last, all others by
            /// LRU.
            Static(PathBuf),
        }

        impl PolicyKind {
            /// The policies that need no file.
            pub const SELF_CONTAINED: &[Self] = &[$(Self::$kind),+];
            /// A list of all policies for help texts.
            pub const CHOICES: &str = choices!($($name),+);

            /// Makes the policy.
            ///
            /// # Errors
            /// [`StoreError::HotList`] if the file of `static` cannot be read or is not a list.
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
            type Err = ParsePolicyError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($name => Ok(Self::$kind),)+
                    _ => {
                        let path = text.strip_prefix("static:").filter(|path| !path.is_empty());
                        path.map(|path| Self::Static(path.into())).ok_or_else(|| ParsePolicyError(text.into()))
                    }
                }
            }
        }
    };
}

kinds! {
    /// Follows the one of the others that would have read least lately.
    #[default]
    Auto = "auto", Auto::new;
    /// Evicts the least recently used block first.
    Lru = "lru", |population| Lru::new(population.blocks.len());
    /// Evicts the block with the fewest uses first; older uses count less.
    Lfru = "lfru", Lfru::new;
    /// Evicts the block with the fewest uses since the start first.
    Lfu = "lfu", |population| Lfu::new(population.blocks.len());
    /// Gives each layer a share of the slots, and evicts by LRU within it.
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
