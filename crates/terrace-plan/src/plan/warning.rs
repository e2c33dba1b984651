//! What the user should know of a plan, as facts.

use crate::wishes::manage::Manage;
use serde::{Deserialize, Serialize};
use std::fmt;
use terrace_model::ByteSize;

/// Something about a plan that may not be what the user wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Warning {
    /// The set that was named has no tensors in this model.
    NothingToStream {
        /// The set that there is.
        manage: Manage,
    },
    /// A cache of this size hits nothing if the least recently used block goes.
    SlotsBelowCycle {
        /// The slots.
        slots: ByteSize,
        /// Streamed weights that one token touches.
        token_cycle: ByteSize,
        /// A budget that holds them.
        enough: ByteSize,
    },
    /// More is mapped than the page cache can hold.
    MappedBeyondMemory {
        /// Weights.
        mapped: ByteSize,
        /// What is left for the page cache.
        left: ByteSize,
    },
    /// Weights and context are more than there is.
    BeyondMemory {
        /// Both together.
        taken: ByteSize,
        /// RAM that may be used.
        available: ByteSize,
    },
    /// A device holds fewer bytes of copies of experts than it was given.
    CopiesBeyondRoom {
        /// The device.
        device: String,
        /// What it has for them.
        room: ByteSize,
        /// What it was given.
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
                write!(f, "{cycle}; a RAM budget above {enough} would hold them")
            }
            Self::MappedBeyondMemory { mapped, left } => write!(
                f,
                "{mapped} are mapped and {left} are left for the page cache: what it cannot hold is read again page by \
                 page at every use, which is far slower than streaming"
            ),
            Self::BeyondMemory { taken, available } => write!(
                f,
                "weights and context take {taken}, but only {available} of RAM are available: the system may swap or \
                 kill the process"
            ),
            Self::CopiesBeyondRoom { device, room, asked } => {
                write!(f, "{device} has room for {room} of expert copies, less than the requested {asked}")
            }
        }
    }
}

/// What to say where slots are smaller than what one token touches.
pub fn token_cycle_warning(slots: ByteSize, token_cycle: ByteSize) -> Option<String> {
    (slots < token_cycle).then(|| {
        format!(
            "slots of {slots} are less than the {token_cycle} of streamed weights that one token uses: with a global LRU \
             0 % hit, and every token reads all of them"
        )
    })
}

/// Something that an estimate rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Note {
    /// The expert cache holds less than a token uses, so that the order of eviction decides.
    CacheBelowToken {
        /// The cache.
        cache: ByteSize,
        /// A token's experts.
        token: ByteSize,
    },
    /// How often experts are expected to be there.
    ExpectedHits {
        /// Share of their uses.
        hits: f64,
        /// Whether the curve was given; if not, it is the usual one.
        given: bool,
        /// Experts that a token uses.
        used: u32,
        /// Experts.
        experts: u32,
        /// Share of them that is in RAM.
        resident: f64,
    },
    /// Nothing is known of the disk.
    StorageUnmeasured,
    /// Nothing is known of the memory's bandwidth.
    BandwidthUnmeasured {
        /// What is assumed, in bytes per second.
        bytes_per_s: f64,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CacheBelowToken { cache, token } => write!(
                f,
                "the expert cache of {cache} is smaller than the {token} of experts that one token uses: `lfru` hits, LRU would not"
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
            Self::StorageUnmeasured => f.write_str("no disk was measured: 3 GB/s is assumed"),
            Self::BandwidthUnmeasured { bytes_per_s } => {
                write!(f, "memory bandwidth was not measured: {:.0} GB/s is assumed", bytes_per_s / 1e9)
            }
        }
    }
}
