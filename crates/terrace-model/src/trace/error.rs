//! Errors of reading a trace.

/// Why a trace cannot be read. Offsets are bytes from the start of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The first bytes are not those of a trace.
    #[error("not a routing trace: it does not begin with TERRATRC")]
    Magic,
    /// The version is unknown.
    #[error("the routing trace has version {found}; this program reads version 1")]
    Version {
        /// The file's version.
        found: u64,
    },
    /// The file ends too early.
    #[error("the trace ends at offset {offset}, within {what}")]
    Truncated {
        /// Length of the file.
        offset: usize,
        /// The incomplete part.
        what: &'static str,
    },
    /// A number is out of range.
    #[error("corrupt trace: {what} at offset {offset} is {found}, the largest possible is {most}")]
    Number {
        /// Offset of the number.
        offset: usize,
        /// The field that the number is.
        what: &'static str,
        /// The number.
        found: u64,
        /// The largest possible value.
        most: u64,
    },
    /// Something else is impossible.
    #[error("corrupt trace at offset {offset}: {reason}")]
    Invalid {
        /// Offset of the problem.
        offset: usize,
        /// The reason.
        reason: &'static str,
    },
    /// The bytes were changed, although they still parse as a trace.
    #[error("corrupt trace: the checksum at offset {offset} is {stored:08x}, computed {computed:08x}")]
    Checksum {
        /// Offset of the checksum.
        offset: usize,
        /// The checksum in the file.
        stored: u32,
        /// The checksum of the bytes before it.
        computed: u32,
    },
}
