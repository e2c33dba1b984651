//! Named sets of weights.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;

/// Which weights stream from disk through slots. All others are resident or mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Manage {
    /// The weights of routed experts.
    Experts,
    /// Experts, shared experts and dense feed-forward matrices.
    Ffn,
    /// Every matrix of at least [`MATRIX_MIN`](crate::model::MATRIX_MIN).
    All,
    /// Nothing. The model must fit, and is read into the memory of the process.
    None,
    /// Nothing. The kernel's page cache serves all weights from mapped files.
    Mapped,
    /// As little as the budget allows.
    #[default]
    Auto,
}

/// Text that is not a [`Manage`].
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
