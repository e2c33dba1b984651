//! Why bytes are no trace.

/// Why a trace cannot be read. Offsets are bytes from the start of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// Other first bytes.
    #[error("not a routing trace: it does not begin with TERRATRC")]
    Magic,
    /// A version that this program does not know.
    #[error("the routing trace has version {found}; this program reads version 1")]
    Version {
        /// The file's.
        found: u64,
    },
    /// The file ends within something.
    #[error("the trace ends at offset {offset}, within {what}")]
    Truncated {
        /// Where the file ends.
        offset: usize,
        /// What is not complete.
        what: &'static str,
    },
    /// A number that cannot be.
    #[error("corrupt trace: {what} at offset {offset} is {found}, the largest possible is {most}")]
    Number {
        /// Where it stands.
        offset: usize,
        /// What it counts.
        what: &'static str,
        /// The number.
        found: u64,
        /// The largest possible.
        most: u64,
    },
    /// Something else that cannot be.
    #[error("corrupt trace at offset {offset}: {reason}")]
    Invalid {
        /// Where it stands.
        offset: usize,
        /// What is wrong.
        reason: &'static str,
    },
    /// Changed bytes that still read as a trace.
    #[error("corrupt trace: the checksum at offset {offset} is {stored:08x}, computed {computed:08x}")]
    Checksum {
        /// Where the checksum stands.
        offset: usize,
        /// The file's.
        stored: u32,
        /// What it should be.
        computed: u32,
    },
}
