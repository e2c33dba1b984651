//! Counts of correct guesses of routers' choices.

/// Accuracy of the predictions of the next block's experts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Foretold {
    /// Experts chosen in blocks for which there was a guess.
    pub chosen: u64,
    /// Number of these that were guessed.
    pub guessed: u64,
}
