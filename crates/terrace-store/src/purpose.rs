//! Why bytes are asked for, and why they are read.

use terrace_model::SWEEP_TOKENS;

/// How a consumer uses the blocks that it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// What is used now is likely to be used again soon: it becomes, or stays, warm.
    Decode,
    /// A pass over (nearly) everything. It leaves what is warm as warm as it was, and what is read for it goes first when
    /// room is needed, the most recently read before the others: of a cycle larger than the room that is left, the part
    /// that fits then stays.
    Sweep,
}

impl Use {
    /// The use that a graph with this many token rows in its ids makes of experts.
    pub const fn of_tokens(rows: u64) -> Self {
        if rows > SWEEP_TOKENS { Self::Sweep } else { Self::Decode }
    }
}

/// Why something is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Asked for, as [`Use::Decode`].
    Decode,
    /// Asked for, as [`Use::Sweep`].
    Sweep,
    /// It may be asked for soon: [`Store::speculate`](crate::Store::speculate).
    Speculation,
    /// There was room: [`Store::fill`](crate::Store::fill).
    Fill,
    /// Into the caller's memory: [`Store::read_into`](crate::Store::read_into).
    Caller,
}

impl Purpose {
    /// Whether nothing waits for it.
    pub const fn is_background(self) -> bool {
        matches!(self, Self::Speculation | Self::Fill)
    }

    /// For people.
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
