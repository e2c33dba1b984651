//! Why there is no plan.

use crate::machine::ProfileError;
use crate::plan::file::FileError;
use crate::rules::RuleError;
use std::fmt;
use terrace_model::ByteSize;

/// Why a model cannot run as asked. Each says what would do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The budget does not hold what must be in memory at once.
    #[error(
        "the RAM budget of {budget} ({} bytes) is too small: the minimum is {minimum} ({} bytes), {need}",
        budget.bytes(),
        minimum.bytes()
    )]
    BudgetTooSmall {
        /// What was given.
        budget: ByteSize,
        /// The smallest budget that works: both parts of `need`.
        minimum: ByteSize,
        /// What the model needs.
        need: Need,
    },
    /// The budget was to be chosen, and the machine has too little room.
    #[error(
        "too little RAM: of {available} available, {context} are for the context and {reserve} stay free, which \
         leaves {left} for weights; the minimum is {minimum}, {need}"
    )]
    AutoNoRoom {
        /// What the machine has.
        available: ByteSize,
        /// What the context takes.
        context: ByteSize,
        /// What is left alone.
        reserve: ByteSize,
        /// What would remain for weights.
        left: ByteSize,
        /// The smallest budget that works: both parts of `need`.
        minimum: ByteSize,
        /// What the model needs.
        need: Need,
    },
    /// The machine's description.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A plan from a file that cannot be followed.
    #[error(transparent)]
    File(#[from] FileError),
    /// Rules for tensors that cannot be followed.
    #[error("tensor rule {0}")]
    Rule(#[from] RuleError),
    /// Layers for devices, and none are there.
    #[error("no layers can be put on devices: there is no accelerator with memory of its own")]
    NoAccelerator,
    /// A device that is not there.
    #[error("the machine has no device `{name}` with memory of its own{}", if known.is_empty() { String::new() } else { format!("; it has {}", known.join(", ")) })]
    NoDevice {
        /// What was asked for.
        name: String,
        /// What it has.
        known: Vec<String>,
    },
    /// Too little memory on devices for the layers that were asked for.
    #[error("{layers} layers do not fit on {}, where {} can be used", names.join(", "), room)]
    NoDeviceRoom {
        /// Layers asked for.
        layers: u32,
        /// The devices.
        names: Vec<String>,
        /// What may be used of all of them.
        room: ByteSize,
    },
    /// A tensor that is asked about and not there.
    #[error("the model has no tensor `{name}`{}", nearest.as_ref().map_or_else(String::new, |n| format!("; did you mean `{n}`?")))]
    NoTensor {
        /// What was asked for.
        name: String,
        /// One that is there.
        nearest: Option<String>,
    },
}

/// What must be in memory at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// Resident weights.
    pub resident: ByteSize,
    /// Slots for what is computed on together.
    pub slots: ByteSize,
    /// What that is: a tensor, or some experts of one; empty if nothing is managed.
    pub what: String,
}

impl Need {
    /// The smallest budget that works.
    pub fn minimum(&self) -> ByteSize {
        self.resident + self.slots
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.what.is_empty() {
            f.write_str("all of it for resident weights")
        } else {
            write!(f, "{} of resident weights and {} of slots for {}", self.resident, self.slots, self.what)
        }
    }
}
