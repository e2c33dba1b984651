//! Adaptation of budgets to free memory.

use std::fmt;
use std::str::FromStr;
use terrace_plan::Budget;

/// Adaptation of the RAM budget to free memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Adapt {
    /// It adapts if it was chosen automatically. A budget that the user gave is kept.
    #[default]
    Auto,
    /// It adapts.
    On,
    /// It does not adapt.
    Off,
}

impl Adapt {
    /// Returns whether `budget` adapts.
    pub fn applies(self, budget: Budget) -> bool {
        match self {
            Self::Auto => budget == Budget::Auto,
            Self::On => true,
            Self::Off => false,
        }
    }
}

/// Text that is not an [`Adapt`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a way to adapt the budget: use auto, on or off")]
pub struct ParseAdaptError(String);

impl FromStr for Adapt {
    type Err = ParseAdaptError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            _ => Err(ParseAdaptError(text.into())),
        }
    }
}

impl fmt::Display for Adapt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::ByteSize;

    #[test]
    fn a_given_budget_stays_unless_it_is_to_adapt() {
        let given = Budget::Bytes(ByteSize::gib(1));
        assert!(Adapt::Auto.applies(Budget::Auto) && !Adapt::Auto.applies(given));
        assert!(Adapt::On.applies(given) && !Adapt::Off.applies(Budget::Auto));
        for adapt in [Adapt::Auto, Adapt::On, Adapt::Off] {
            assert_eq!(adapt.to_string().parse(), Ok(adapt));
        }
        assert!("maybe".parse::<Adapt>().unwrap_err().to_string().contains("`maybe`"));
    }
}
