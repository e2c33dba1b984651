//! Errors of planning.

use crate::machine::{DeviceProfile, ProfileError};
use crate::plan::file::FileError;
use crate::rules::RuleError;
use std::fmt;
use terrace_model::{ByteSize, KvType, printable};

/// Why a model cannot run as requested. Errors of memory name the smallest budget that would do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The budget is smaller than what must be in memory at once.
    #[error(
        "the RAM budget of {budget} ({} bytes) is too small: the minimum is {minimum} ({} bytes), {need}",
        budget.bytes(),
        minimum.bytes()
    )]
    BudgetTooSmall {
        /// The given budget.
        budget: ByteSize,
        /// The smallest budget that works: both parts of `need`.
        minimum: ByteSize,
        /// The requirement.
        need: Need,
    },
    /// The budget was to be chosen automatically, and the machine has too little free RAM.
    #[error(
        "too little RAM: of {available} available, {context} are for the context and {reserve} stay free, which \
         leaves {left} for weights; the minimum is {minimum}, {need}"
    )]
    AutoNoRoom {
        /// Available RAM.
        available: ByteSize,
        /// RAM that the context takes.
        context: ByteSize,
        /// RAM that stays free.
        reserve: ByteSize,
        /// RAM that would remain for weights.
        left: ByteSize,
        /// The smallest budget that works: both parts of `need`.
        minimum: ByteSize,
        /// The requirement.
        need: Need,
    },
    /// The description of the machine is invalid.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A plan from a file cannot be followed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A tensor rule cannot be followed.
    #[error("tensor rule {0}")]
    Rule(#[from] RuleError),
    /// The machine does not have the device.
    #[error("the machine has no device `{name}` with memory of its own{}", if known.is_empty() { String::new() } else { format!("; it has {}", known.join(", ")) })]
    NoDevice {
        /// The requested device.
        name: String,
        /// The devices that the machine has.
        known: Vec<String>,
    },
    /// Something is requested of a device that is not among those that may be used.
    #[error("device {name} is not among those that may be used: {}", if usable.is_empty() { "none".into() } else { usable.join(", ") })]
    LeftOut {
        /// The device.
        name: String,
        /// Those that may be used.
        usable: Vec<String>,
    },
    /// The devices have too little memory for the requested layers.
    #[error("{layers} layers do not fit on {}, where {} can be used", names.join(", "), room)]
    NoDeviceRoom {
        /// Number of requested layers.
        layers: u32,
        /// Names of the devices.
        names: Vec<String>,
        /// Memory that may be used on all of them together.
        room: ByteSize,
    },
    /// A quantised type does not divide the model's attention heads.
    #[error(
        "{what}s cannot be stored as {ty}: blocks of {block} values do not divide the model's {what} head size of {head}"
    )]
    KvHead {
        /// `key` or `value`.
        what: &'static str,
        /// The requested type.
        ty: KvType,
        /// Values in a block of the type.
        block: u64,
        /// Values of a head.
        head: u64,
    },
    /// Keys and values were requested in types that differ, and the model keeps both in the same rows.
    #[error(
        "keys cannot be {keys} and values {values}: with the model's latent attention, both are in the same rows"
    )]
    KvDiffer {
        /// The type of keys.
        keys: KvType,
        /// The type of values.
        values: KvType,
    },
    /// The model has nothing that a token passes through.
    #[error("the model has no layers, so there is nothing to estimate")]
    NoLayers,
    /// The model does not have the tensor.
    #[error("the model has no tensor `{name}`{}", nearest.as_ref().map_or_else(String::new, |n| format!("; did you mean `{n}`?")))]
    NoTensor {
        /// The requested name.
        name: String,
        /// The most similar name in the model.
        nearest: Option<String>,
    },
}

impl PlanError {
    /// The machine has these devices, and none of this name. Both come from files.
    pub(crate) fn no_device<'a>(name: &str, known: impl Iterator<Item = &'a DeviceProfile>) -> Self {
        let known = known.map(|device| printable(&device.name)).collect();
        Self::NoDevice { name: printable(name), known }
    }
}

/// The memory that a run needs at the least.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// Resident weights.
    pub resident: ByteSize,
    /// Slots for the weights that one operation needs at once.
    pub slots: ByteSize,
    /// The weights in these slots: a tensor, or some experts of one; empty if nothing is streamed.
    pub what: String,
}

impl Need {
    /// Returns the smallest budget that works.
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
