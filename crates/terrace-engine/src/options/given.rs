//! What is known of a run's work before the model is loaded.

/// The prompt and the answer of a run, as far as they are known: estimates are then about them, and not about what is
/// usual.
#[derive(Clone, Debug, Default)]
pub struct GivenWork {
    pub prompt: Option<GivenPrompt>,
    /// Tokens that are to be generated.
    pub output: Option<u32>,
}

/// A prompt.
#[derive(Clone, Debug)]
pub enum GivenPrompt {
    /// Its text, whose tokens are counted where that costs nothing, and estimated otherwise.
    Text(String),
    /// Its number of tokens.
    Tokens(u32),
}
