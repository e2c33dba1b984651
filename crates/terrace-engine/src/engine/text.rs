//! Texts as tokens.

use super::Engine;
use crate::chat::SpecialTokens;
use crate::error::EngineError;
use crate::token_lengths::TokenLengths;
use crate::tokenize::{tokenize, tokenize_prompt};
use crate::vision::{Images, Prompted, Reading, VisionError};

impl Engine {
    /// Tokenises a text. `add_special` adds the tokens that the model expects around a document;
    /// `parse_special` recognises control tokens in the text.
    ///
    /// # Errors
    /// [`EngineError::Tokenize`].
    pub fn tokenize(
        &self,
        text: &str,
        add_special: bool,
        parse_special: bool,
    ) -> Result<Vec<i32>, EngineError> {
        tokenize(&self.model, text, add_special, parse_special, &|| true)
    }

    /// Tokenises a text that is to fit the context, with control tokens in it recognised.
    /// `add_special` adds the tokens that the model expects around a document.
    ///
    /// # Errors
    /// [`EngineError::TextTooLong`], for most texts that do not fit before they are tokenised;
    /// [`EngineError::Tokenize`].
    pub fn tokenize_prompt(&self, text: &str, add_special: bool) -> Result<Vec<i32>, EngineError> {
        // No token is shorter than a byte.
        let lengths = (text.len() > self.context_size()).then(|| TokenLengths::of(self.vocab()));
        tokenize_prompt(&self.model, lengths, self.context_size(), text, add_special, &|| true)
    }

    /// The tokens of a prompt with images, whose marks are in the text, as [`Engine::tokenize_prompt`].
    ///
    /// # Errors
    /// As [`Engine::tokenize_prompt`], and [`EngineError::Vision`].
    pub fn read_prompt(
        &self,
        text: &str,
        images: &Images,
        add_special: bool,
    ) -> Result<Prompted, EngineError> {
        if images.is_empty() {
            return Ok(self.tokenize_prompt(text, add_special)?.into());
        }
        let vision = self.vision.as_ref().ok_or(VisionError::NoProjector)?;
        let (lengths, context) = (TokenLengths::of(self.vocab()), self.context_size());
        let reading = Reading { model: &self.model, lengths, context, wanted: &|| true };
        vision.prompt(&reading, text, images, add_special)
    }

    /// Number of tokens in the vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.vocab().len()
    }

    /// The chat template (Jinja source): the model's own, unless the options have another one.
    pub fn chat_template(&self) -> Option<String> {
        self.chat_template.clone().or_else(|| self.model.chat_template())
    }

    /// Texts of the tokens that chat templates refer to.
    pub fn special_tokens(&self) -> SpecialTokens {
        SpecialTokens { bos: self.vocab().bos_text(), eos: self.vocab().eos_text() }
    }
}
