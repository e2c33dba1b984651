//! Text and images to a sequence of tokens.

use super::Vision;
use super::error::VisionError;
use super::image::Image;
use super::images::{Images, PromptPart};
use super::key::stand_ins;
use super::media::Media;
use crate::error::EngineError;
use crate::token_lengths::TokenLengths;
use crate::tokenize::{tokenize, tokenize_prompt};
use terrace_ggml::llama::{Model, Token};
use terrace_ggml::vision::{ImagePiece, Piece};

/// The tokens of a prompt, and the images among them.
#[derive(Clone, Debug, Default)]
pub struct Prompted {
    /// Tokens; negative numbers stand for embeddings of images.
    pub tokens: Vec<i32>,
    /// The images.
    pub media: Media,
}

impl From<Vec<i32>> for Prompted {
    fn from(tokens: Vec<i32>) -> Self {
        Self { tokens, media: Media::default() }
    }
}

/// Parts that tokenise a text.
pub struct Reading<'a> {
    /// Whose tokens they become.
    pub model: &'a Model,
    /// Refuses texts that are too long before they are tokenised.
    pub lengths: TokenLengths,
    /// Tokens of the context that the prompt is to fit.
    pub context: usize,
    /// True if anything still waits for it.
    pub wanted: &'a (dyn Fn() -> bool + Sync),
}

impl Vision {
    /// The tokens of a text with marks that stand for images. `add_special` adds the tokens that the
    /// model expects around a document.
    ///
    /// # Errors
    /// [`EngineError::Vision`], [`EngineError::TextTooLong`], [`EngineError::Tokenize`];
    /// [`EngineError::Cancelled`] if it is not wanted any more.
    pub fn prompt(
        &self,
        reading: &Reading<'_>,
        text: &str,
        images: &Images,
        add_special: bool,
    ) -> Result<Prompted, EngineError> {
        let vocab = reading.model.vocab();
        let mut prompted = Prompted::default();
        let around = |token: Option<Token>| token.filter(|_| add_special).map(|token| token.0);
        prompted.tokens.extend(around(vocab.leading()));
        for part in images.parts(text)? {
            match part {
                PromptPart::Text("") => {}
                PromptPart::Text(text) => prompted.tokens.extend(reading.tokens(text)?),
                PromptPart::Image { number, file } => {
                    let image = Image::read(file);
                    let image = image.map_err(|reason| VisionError::Unread { number, reason })?;
                    self.add(&image, &mut prompted)?;
                }
            }
            let (least, context) = (prompted.tokens.len(), reading.context);
            if least > context {
                return Err(EngineError::TextTooLong { bytes: text.len(), least, context });
            }
            if !(reading.wanted)() {
                return Err(EngineError::Cancelled);
            }
        }
        prompted.tokens.extend(around(vocab.pair().end));
        Ok(prompted)
    }

    /// Appends what stands for an image.
    fn add(&self, image: &Image, prompted: &mut Prompted) -> Result<(), EngineError> {
        let mut number = 0;
        for piece in self.projector.cut(&image.bitmap).map_err(VisionError::from)? {
            match piece {
                Piece::Text(tokens) => prompted.tokens.extend(tokens.iter().map(|token| token.0)),
                Piece::Image(piece) => {
                    self.check(&piece)?;
                    let at = prompted.tokens.len();
                    prompted.tokens.extend(stand_ins(&self.seed, &image.contents, number, piece.tokens()));
                    prompted.media.push(at, piece);
                    number += 1;
                }
            }
        }
        Ok(())
    }

    /// Checks that a piece can be evaluated.
    fn check(&self, piece: &ImagePiece) -> Result<(), VisionError> {
        let (tokens, most) = (piece.tokens(), self.ubatch);
        match self.projector.is_two_way() && tokens > most {
            true => Err(VisionError::TooWide { tokens, most }),
            false => Ok(()),
        }
    }
}

impl Reading<'_> {
    /// The tokens of a part of a text, with control tokens in it recognised.
    fn tokens(&self, text: &str) -> Result<Vec<i32>, EngineError> {
        match text.len() {
            // llama.cpp's own way is as fast.
            0..=64 => tokenize(self.model, text, false, true, self.wanted),
            _ => tokenize_prompt(self.model, Some(self.lengths), self.context, text, false, self.wanted),
        }
    }
}
