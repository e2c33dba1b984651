//! Tokenising without an engine: a model's vocabulary can be used from any thread.

use crate::error::EngineError;
use crate::token_lengths::TokenLengths;
use terrace_ggml::llama::{Model, TokenizeReason};

/// As [`Engine::tokenize_prompt`](crate::Engine::tokenize_prompt), without the engine. Ends with [`EngineError::Cancelled`] when it is
/// no longer `wanted`. `lengths` may be left out for texts of no more bytes than the context has
/// tokens.
pub fn tokenize_prompt(
    model: &Model,
    lengths: Option<TokenLengths>,
    context: usize,
    text: &str,
    add_special: bool,
    wanted: &(dyn Fn() -> bool + Sync),
) -> Result<Vec<i32>, EngineError> {
    let too_long = |least| EngineError::TextTooLong { bytes: text.len(), least, context };
    let least = lengths.map_or(0, |lengths| lengths.least(text));
    if least > context {
        return Err(too_long(least));
    }
    let go_on = |tokens| tokens <= context && wanted();
    match model.vocab().tokenize_while(text, add_special, true, &go_on) {
        Ok(tokens) => Ok(tokens.into_iter().map(|token| token.0).collect()),
        Err(error) if error.reason != TokenizeReason::Stopped => Err(error.into()),
        Err(_) if wanted() => Err(too_long(context + 1)),
        Err(_) => Err(EngineError::Cancelled),
    }
}

/// As [`Engine::tokenize`](crate::Engine::tokenize), without the engine: a model's vocabulary can be used from any thread.
pub fn tokenize(
    model: &Model,
    text: &str,
    add_special: bool,
    parse_special: bool,
    wanted: &(dyn Fn() -> bool + Sync),
) -> Result<Vec<i32>, EngineError> {
    let tokens = model.vocab().tokenize_while(text, add_special, parse_special, &|_| wanted())?;
    Ok(tokens.into_iter().map(|token| token.0).collect())
}
