//! Budgets of memory.

use std::fmt;
use std::str::FromStr;
use terrace_model::{ByteSize, ParseByteSizeError};

/// Limit of memory for the weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Budget {
    /// The available memory, less the context and a reserve, but at most the model's size.
    #[default]
    Auto,
    /// A fixed size.
    Bytes(ByteSize),
}

/// Text that is not a [`Budget`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseBudgetError {
    /// It is no size.
    #[error("{0}, or `auto`")]
    Size(#[from] ParseByteSizeError),
    /// It is a few bytes, without a unit.
    #[error("that is {0} bytes; did you mean {0}GiB?")]
    Bytes(u64),
}

/// Sizes without a unit that nobody means.
const FEW: u64 = 1024;

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
        match text.parse::<u64>() {
            Ok(bytes @ 1..FEW) => Err(ParseBudgetError::Bytes(bytes)),
            _ if text == "auto" => Ok(Self::Auto),
            _ => Ok(Self::Bytes(text.parse()?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_read_back() {
        for budget in [Budget::Auto, Budget::Bytes(ByteSize::mib(512))] {
            assert_eq!(budget.to_string().parse(), Ok(budget));
        }
        let error = "12".parse::<Budget>().unwrap_err().to_string();
        assert_eq!(error, "that is 12 bytes; did you mean 12GiB?");
        assert_eq!("0".parse(), Ok(Budget::Bytes(ByteSize::ZERO)));
        assert!("lots".parse::<Budget>().unwrap_err().to_string().contains("`auto`"));
    }
}
