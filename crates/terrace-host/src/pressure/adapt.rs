//! Adaptation of budgets to free memory.

use terrace_plan::Budget;

/// Adaptation of the RAM budget to free memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Adapt {
    /// Only a budget that was not given.
    #[default]
    Auto,
    /// Also a given budget.
    On,
    /// Never.
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

terrace_model::by_name!(Adapt);

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::ByteSize;

    #[test]
    fn a_given_budget_stays_unless_it_is_to_adapt() {
        let given = Budget::Bytes(ByteSize::gib(1));
        assert!(Adapt::Auto.applies(Budget::Auto) && !Adapt::Auto.applies(given));
        assert!(Adapt::On.applies(given) && !Adapt::Off.applies(Budget::Auto));
    }
}
