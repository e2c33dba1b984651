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
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<u64>() {
            Ok(bytes @ 1..FEW) => Err(format!("that is {bytes} bytes; did you mean {bytes}GiB?")),
            _ if text == "auto" => Ok(Self::Auto),
            _ => text
                .parse()
                .map(Self::Bytes)
                .map_err(|error: ParseByteSizeError| format!("{error}, or `auto`")),
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
        let error = "12".parse::<Budget>().unwrap_err();
        assert_eq!(error, "that is 12 bytes; did you mean 12GiB?");
        assert_eq!("0".parse(), Ok(Budget::Bytes(ByteSize::ZERO)));
        assert!("lots".parse::<Budget>().unwrap_err().contains("`auto`"));
    }
}
