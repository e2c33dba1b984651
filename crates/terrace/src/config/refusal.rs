//! Spellings that Terrace knows and refuses.

/// Why an option of llama.cpp is refused, and what to do instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub why: &'static str,
    /// The alternative.
    pub hint: &'static str,
}

/// A known spelling that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The spelling as it was written.
    pub spelling: String,
    /// The reason.
    pub refusal: Refusal,
}
