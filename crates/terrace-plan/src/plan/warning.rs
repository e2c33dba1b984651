//! Warnings about a plan, as facts.

use crate::options::manage::Manage;
use serde::{Deserialize, Serialize};
use std::fmt;
use terrace_model::ByteSize;

/// Something about a plan that may not be what the user wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Warning {
    /// The named set has no tensors in this model.
    NothingToStream {
        /// The set.
        manage: Manage,
    },
    /// The slots are smaller than a token cycle: a cache that evicts the least recently used block
    /// never hits.
    SlotsBelowCycle {
        /// Bytes of the slots.
        slots: ByteSize,
        /// Bytes of streamed weights that one token uses.
        token_cycle: ByteSize,
        /// A budget whose slots hold them.
        enough: ByteSize,
    },
    /// More weights are mapped than the page cache can hold.
    MappedBeyondMemory {
        /// Bytes of mapped weights.
        mapped: ByteSize,
        /// Bytes that are left for the page cache.
        left: ByteSize,
    },
    /// The given budget is more than memory has beside the context.
    BudgetBeyondMemory {
        /// The given budget.
        asked: ByteSize,
        /// The budget in its place.
        room: ByteSize,
    },
    /// Something is requested of devices, but the machine has none that may be used.
    NoAccelerator,
    /// All layers are requested on devices, but they do not have the room.
    LayersBeyondRoom {
        /// Bytes that devices have for them.
        room: ByteSize,
    },
    /// A rule matches tensors that are too small to be streamed, beside others.
    SmallStayResident {
        rule: String,
        /// Number of tensors.
        tensors: u64,
    },
    /// A device has less memory for copies of experts than was requested.
    CopiesBeyondRoom {
        /// Name of the device.
        device: String,
        /// Bytes that it has for them.
        room: ByteSize,
        /// Requested bytes.
        asked: ByteSize,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingToStream { manage } => {
                write!(f, "the model has no weights that `{manage}` streams: all of it is resident")
            }
            Self::SlotsBelowCycle { slots, token_cycle, enough } => {
                let cycle = token_cycle_warning(*slots, *token_cycle).unwrap_or_default();
                write!(f, "{cycle}; a RAM budget above {enough} would hold all of them")
            }
            Self::MappedBeyondMemory { mapped, left } => write!(
                f,
                "{mapped} are mapped and {left} are left for the page cache: what it cannot hold is read again page by \
                 page at every use, which is far slower than streaming"
            ),
            Self::BudgetBeyondMemory { asked, room } => {
                write!(
                    f,
                    "the RAM budget is {room} instead of {asked}: that is what memory has beside the context"
                )
            }
            Self::NoAccelerator => {
                f.write_str("nothing is on accelerators: there is none with memory of its own")
            }
            Self::LayersBeyondRoom { room } => write!(
                f,
                "devices have {room} for layers, not enough for all; they hold as many as make the model faster"
            ),
            Self::SmallStayResident { rule, tensors } => {
                write!(
                    f,
                    "tensor rule `{rule}`: {tensors} tensors that are no matrices of 64 KiB or more stay in RAM"
                )
            }
            Self::CopiesBeyondRoom { device, room, asked } => {
                write!(f, "{device} has room for {room} of expert copies, less than the requested {asked}")
            }
        }
    }
}

/// Returns a warning if the slots are smaller than what one token uses.
pub fn token_cycle_warning(slots: ByteSize, token_cycle: ByteSize) -> Option<String> {
    (slots < token_cycle).then(|| {
        format!(
            "slots of {slots} are smaller than the {token_cycle} of streamed weights that one token uses, so most are read again for each token"
        )
    })
}

/// An assumption of an estimate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Note {
    /// The expert cache holds less than a token uses, so that hits depend on the cache policy.
    CacheBelowToken {
        /// Bytes of the cache.
        cache: ByteSize,
        /// Bytes of the experts that a token uses.
        token: ByteSize,
    },
    ExpectedHits {
        /// Share of expert uses that hit.
        hits: f64,
        /// True if the hit curve was given; otherwise it is the typical one.
        given: bool,
        /// Experts that a token uses.
        used: u32,
        /// Experts per layer.
        experts: u32,
        /// Share of the experts that is in RAM.
        resident: f64,
    },
    /// A device that computes on main memory is not reckoned with, since runs do not use it.
    UnifiedUnused {
        /// Name of the device.
        device: String,
    },
    /// A device that computes on main memory computes large batches only.
    UnifiedBatches {
        /// Name of the device.
        device: String,
        /// Tokens of a graph from which it does.
        tokens: u32,
    },
    /// The rate of the disk is unknown.
    StorageUnmeasured,
    /// The bandwidth of the memory is unknown.
    BandwidthUnmeasured {
        /// Assumed bytes per second.
        bytes_per_s: f64,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CacheBelowToken { cache, token } => write!(
                f,
                "the expert cache of {cache} is smaller than the {token} of experts that one token uses: few hit, and none with `lru`"
            ),
            Self::ExpectedHits { hits, given, used, experts, resident } => {
                let source = if *given { "the given hit curve" } else { "the typical hit curve" };
                let (hits, resident) = (hits * 100.0, resident * 100.0);
                write!(
                    f,
                    "{hits:.0} % of expert uses are expected to hit, by {source} for {used} of {experts} experts with \
                     {resident:.0} % resident"
                )
            }
            Self::UnifiedUnused { device } => {
                write!(f, "{device} has no memory of its own: runs leave it idle, and so does this plan")
            }
            Self::UnifiedBatches { device, tokens } => write!(
                f,
                "{device} has no memory of its own and holds no weights: it computes graphs of {tokens} tokens and \
                 more, for which ggml copies them to buffers of its own, and the CPU all others"
            ),
            Self::StorageUnmeasured => f.write_str("no disk was measured: 3 GB/s is assumed"),
            Self::BandwidthUnmeasured { bytes_per_s } => {
                write!(f, "memory bandwidth was not measured: {:.0} GB/s is assumed", bytes_per_s / 1e9)
            }
        }
    }
}
