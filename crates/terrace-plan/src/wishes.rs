//! What the caller brings: the machine's numbers and the user's wishes.

use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use terrace_model::{ByteSize, ParseByteSizeError};

/// What the machine offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// RAM that may still be taken: what the system calls available, or what is left under a memory limit.
    pub ram_available: ByteSize,
}

/// What the user wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Which weights Terrace manages.
    pub manage: Manage,
    /// All weight memory that Terrace may hold: resident weights and slots.
    pub ram_budget: Budget,
    /// Memory for the context (KV cache, compute buffers), which is not part of the budget.
    pub context: ByteSize,
    /// Whether [`Manage::Auto`] may leave all weights to the page cache where they fit; not where the caller says how
    /// weights are to be read.
    pub mapping: bool,
}

/// Which weights Terrace manages: they are streamed from disk through slots, all others are resident or mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Manage {
    /// Weights of routed experts.
    Experts,
    /// Experts, shared experts and dense feed-forward matrices.
    Ffn,
    /// Every matrix of at least [`MATRIX_MIN`](crate::MATRIX_MIN).
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
#[error("`{0}` does not say what to manage: use experts, ffn, all, none, mapped or auto")]
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

/// How much RAM the weights may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Budget {
    /// What the machine has, less the context and a reserve, at most the model's size.
    #[default]
    Auto,
    /// So much.
    Bytes(ByteSize),
}

/// Text that is no [`Budget`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} (or `auto`)")]
pub struct ParseBudgetError(#[from] ParseByteSizeError);

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Bytes(size) => size.fmt(f),
        }
    }
}

impl FromStr for Budget {
    type Err = ParseBudgetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" { Ok(Self::Auto) } else { Ok(Self::Bytes(text.parse()?)) }
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
        for budget in [Budget::Auto, Budget::Bytes(ByteSize::mib(512))] {
            assert_eq!(budget.to_string().parse(), Ok(budget));
        }
        assert!("some".parse::<Manage>().unwrap_err().to_string().contains("experts"));
        assert!("lots".parse::<Budget>().unwrap_err().to_string().contains("`auto`"));
    }
}
