//! What slots in RAM are used for.

use std::path::PathBuf;
use terrace_model::{ByteSize, SizeChoice};
use terrace_store::PolicyKind;

/// How much may be read ahead on a guess of the next layer's experts: as measured to be best, nothing, or slots of this size.
pub type Lookahead = SizeChoice;

/// Bytes that guesses may take of the `slots`.
pub(crate) fn lookahead_bytes(choice: Lookahead, slots: ByteSize) -> ByteSize {
    match choice {
        Lookahead::Auto => AUTO_LOOKAHEAD.min(ByteSize(slots.bytes() / AUTO_SHARE)),
        Lookahead::Off => ByteSize::ZERO,
        Lookahead::Bytes(bytes) => bytes,
    }
}

/// What the disk reads while attention and the router compute, with some in reserve: 3 ms at 2.5 GB/s. Half of it leaves the
/// disk idle, twice as much makes demand wait for wrong guesses (`docs/benchmarks/decode.md`).
const AUTO_LOOKAHEAD: ByteSize = ByteSize::mib(8);
/// The part of the slots that guesses take at most.
const AUTO_SHARE: u64 = 8;

/// What slots in RAM are used for.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// Percent of the slots that the budget allows which are used; the page cache may have the rest.
    pub slots_share: u32,
    /// Which blocks are evicted when the slots are full.
    pub policy: PolicyKind,
    /// How much may be read ahead on a guess.
    pub lookahead: Lookahead,
    /// Where it is kept which experts the model uses, so that the next run reads the hottest ahead; `None` means nowhere.
    /// Recording a trace switches it off.
    pub warm_start: Option<PathBuf>,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            slots_share: 100,
            policy: PolicyKind::default(),
            lookahead: Lookahead::default(),
            warm_start: None,
        }
    }
}
