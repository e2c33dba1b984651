//! Tokens.

/// A token of a model's vocabulary.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub i32);
