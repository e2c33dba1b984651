//! Division of copies of experts among several devices.

use std::fmt;
use std::str::FromStr;

/// Division of copies of experts among several devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HotSplit {
    /// Each device holds the copies of some layers.
    #[default]
    Layers,
    /// Each device holds some copies of every layer, and the hottest experts are divided evenly.
    Even,
    /// Each device holds some copies of every layer, and the first ones hold the hottest experts.
    Warm,
}

impl HotSplit {
    /// Returns whether each device holds whole experts of every layer.
    pub const fn divides_experts(self) -> bool {
        matches!(self, Self::Even | Self::Warm)
    }
}

/// Text that is not a [`HotSplit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseHotSplitError {
    /// A slice of every copy on each device, which is no longer an option.
    #[error("slices of copies have been removed: use `even` instead of `on`")]
    Removed,
    /// Anything else.
    #[error("expected `off`, `even` or `warm`")]
    Unknown,
}

impl FromStr for HotSplit {
    type Err = ParseHotSplitError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" => Ok(Self::Layers),
            "even" => Ok(Self::Even),
            "warm" => Ok(Self::Warm),
            "on" => Err(ParseHotSplitError::Removed),
            _ => Err(ParseHotSplitError::Unknown),
        }
    }
}

impl fmt::Display for HotSplit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Layers => "off",
            Self::Even => "even",
            Self::Warm => "warm",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for split in [HotSplit::Layers, HotSplit::Even, HotSplit::Warm] {
            assert_eq!(split.to_string().parse(), Ok(split));
        }
        assert_eq!("hot".parse::<HotSplit>(), Err(ParseHotSplitError::Unknown));
        assert_eq!("on".parse::<HotSplit>(), Err(ParseHotSplitError::Removed));
    }
}
