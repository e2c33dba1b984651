//! Experts that are read on a guess.

/// Most tokens of a graph for which the next layer's experts are guessed. Tokens of several answers and drafts
/// gain as a lone one does; a prompt of more tokens keeps the disk busy by what it needs
/// (docs/benchmarks/decode.md, "Answers together, read ahead").
pub const LOOKAHEAD_TOKENS: usize = 16;
