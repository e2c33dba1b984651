//! Why bytes are requested, and why they are read.

use terrace_model::SWEEP_TOKENS;

/// The use that a consumer makes of the blocks that it requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Blocks that are used now are likely to be used again soon, so they become or stay warm.
    Decode,
    /// A pass over nearly everything. It does not change which blocks are warm. The blocks that it
    /// reads are evicted before all others, the most recently read first: if a cycle of sweeps is
    /// larger than the available room, the part that fits then stays.
    Sweep,
}

impl Use {
    /// Returns how a graph with this many token rows in its ids uses experts.
    pub const fn of_tokens(rows: u64) -> Self {
        if rows > SWEEP_TOKENS { Self::Sweep } else { Self::Decode }
    }
}

/// Why something is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A demand with [`Use::Decode`].
    Decode,
    /// A demand with [`Use::Sweep`].
    Sweep,
    /// A guess that it may be needed soon: [`Store::speculate`](crate::Store::speculate).
    Speculation,
    /// Filling free room: [`Store::fill`](crate::Store::fill).
    Fill,
    /// A read into the caller's memory: [`Store::read_into`](crate::Store::read_into).
    Caller,
}

impl Purpose {
    /// Returns whether nothing waits for such reads.
    pub const fn is_background(self) -> bool {
        matches!(self, Self::Speculation | Self::Fill)
    }

    /// Returns the name in timelines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Decode => "demand",
            Self::Sweep => "sweep",
            Self::Speculation => "speculation",
            Self::Fill => "fill",
            Self::Caller => "caller",
        }
    }
}

impl From<Use> for Purpose {
    fn from(how: Use) -> Self {
        match how {
            Use::Decode => Self::Decode,
            Use::Sweep => Self::Sweep,
        }
    }
}
