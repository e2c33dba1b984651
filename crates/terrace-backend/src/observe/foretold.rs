//! Counts of correct guesses of routers' choices.

/// How well the next block's experts were predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Foretold {
    /// Experts chosen in blocks for which there was a guess.
    pub chosen: u64,
    /// How many of these were guessed.
    pub guessed: u64,
}
