//! How often guesses of routers' choices were right.

/// How well the next block's experts were foretold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Foretold {
    /// Experts that were chosen in blocks that there was a guess for.
    pub chosen: u64,
    /// Those among them that were guessed.
    pub guessed: u64,
}
