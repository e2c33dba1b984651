//! Tokens that mark the parts of a text with a gap.

use super::token::Token;
use super::vocab::Vocab;
use llama_cpp_sys_2 as sys;

/// The tokens with which a model is asked to fill a gap in a text; `None` where the model has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FimTokens {
    /// Before the text that precedes the gap.
    pub prefix: Option<Token>,
    /// Before the text that follows the gap.
    pub suffix: Option<Token>,
    /// Before the text for the gap.
    pub middle: Option<Token>,
    /// Before the name of a repository.
    pub repository: Option<Token>,
    /// Before the name of each of its files.
    pub file: Option<Token>,
}

impl Vocab<'_> {
    /// The tokens for gaps, from the model's metadata or by their usual texts.
    pub fn fim(self) -> FimTokens {
        let token = |id: i32| (id >= 0).then_some(Token(id));
        let vocab = self.as_ptr();
        // SAFETY: the vocabulary lives with the model; these are getters of fields.
        unsafe {
            FimTokens {
                prefix: token(sys::llama_vocab_fim_pre(vocab)),
                suffix: token(sys::llama_vocab_fim_suf(vocab)),
                middle: token(sys::llama_vocab_fim_mid(vocab)),
                repository: token(sys::llama_vocab_fim_rep(vocab)),
                file: token(sys::llama_vocab_fim_sep(vocab)),
            }
        }
    }
}
