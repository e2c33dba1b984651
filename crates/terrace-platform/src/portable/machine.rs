//! The machine.

/// The name that the machine has for itself, if it is known.
pub const fn name() -> Option<String> {
    None
}
