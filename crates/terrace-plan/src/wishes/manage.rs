//! Sets of weights by name.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;

/// Which weights Terrace manages: they are streamed from disk through slots, all others are resident or mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Manage {
    /// Weights of routed experts.
    Experts,
    /// Experts, shared experts and dense feed-forward matrices.
    Ffn,
    /// Every matrix of at least [`MATRIX_MIN`](crate::model::MATRIX_MIN).
    All,
    /// Nothing: the model must fit. It is read into memory of the process.
    None,
    /// Nothing: the kernel's page cache serves all weights out of mapped files.
    Mapped,
    /// As little as the budget makes necessary.
    #[default]
    Auto,
}

/// Text that is no [`Manage`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a set of weights to stream: use experts, ffn, all, none, mapped or auto")]
pub struct ParseManageError(String);

impl fmt::Display for Manage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Experts => "experts",
            Self::Ffn => "ffn",
            Self::All => "all",
            Self::None => "none",
            Self::Mapped => "mapped",
            Self::Auto => "auto",
        })
    }
}

impl FromStr for Manage {
    type Err = ParseManageError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "experts" => Ok(Self::Experts),
            "ffn" => Ok(Self::Ffn),
            "all" => Ok(Self::All),
            "none" => Ok(Self::None),
            "mapped" => Ok(Self::Mapped),
            "auto" => Ok(Self::Auto),
            _ => Err(ParseManageError(text.into())),
        }
    }
}

impl Serialize for Manage {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Manage {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_read_back() {
        for manage in [Manage::Experts, Manage::Ffn, Manage::All, Manage::None, Manage::Mapped, Manage::Auto]
        {
            assert_eq!(manage.to_string().parse(), Ok(manage));
        }
        assert!("some".parse::<Manage>().unwrap_err().to_string().contains("experts"));
    }
}
