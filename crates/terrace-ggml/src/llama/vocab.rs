//! Text to tokens and back.

use super::load::Model;
use super::stack::{self, TooLong};
use super::token::Token;
use crate::cxx::{CxxError, calls, guard};
use llama_cpp_sys_2 as sys;
use std::ffi::{CStr, c_char};

/// A model's vocabulary.
#[derive(Clone, Copy, Debug)]
pub struct Vocab<'m> {
    ptr: *const sys::llama_vocab,
    model: &'m Model,
}

// SAFETY: llama.cpp's vocabularies are read-only after loading, and have no thread affinity.
unsafe impl Send for Vocab<'_> {}
// SAFETY: as for Send.
unsafe impl Sync for Vocab<'_> {}

/// A text that could not be tokenised.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot tokenise a text of {bytes} bytes: {reason}")]
pub struct TokenizeError {
    /// Its length.
    pub bytes: usize,
    /// Why.
    pub reason: TokenizeReason,
}

/// Why a text could not be tokenised.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenizeReason {
    /// There is no vocabulary.
    #[error("the model has no tokenizer")]
    NoTokenizer,
    /// A run of characters without white space, or of white space, that takes the tokenizer too
    /// much stack or time.
    #[error("a run of {run} bytes without a word's end, or of white space (at most {most})")]
    Run {
        /// Its length in bytes.
        run: usize,
        /// The longest that this vocabulary's tokenizer is given.
        most: usize,
    },
    /// No thread for a long run.
    #[error("cannot start a thread: {0}")]
    Thread(String),
    /// Bytes or tokens beyond what an `i32` can count.
    #[error("too long")]
    TooLong,
    /// The tokenizer threw: of a SentencePiece vocabulary without byte tokens, at a character that it lacks.
    #[error(transparent)]
    Cxx(#[from] CxxError),
}

impl Model {
    /// The model's vocabulary.
    pub fn vocab(&self) -> Vocab<'_> {
        // SAFETY: the model is alive; the vocabulary is part of it.
        Vocab { ptr: unsafe { sys::llama_model_get_vocab(self.as_ptr()) }, model: self }
    }
}

impl Vocab<'_> {
    /// Number of tokens.
    pub fn len(self) -> usize {
        // SAFETY: the vocabulary lives with the model.
        usize::try_from(unsafe { sys::llama_vocab_n_tokens(self.ptr) }).unwrap_or(0)
    }

    /// Whether it has no tokens (a model without tokenizer).
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Tokenises a text. `add_special` adds the BOS and EOS tokens that the model expects;
    /// `parse_special` recognises control tokens written in the text.
    ///
    /// # Errors
    /// [`TokenizeError`], for one of [`TokenizeReason`].
    pub fn tokenize(
        self,
        text: &str,
        add_special: bool,
        parse_special: bool,
    ) -> Result<Vec<Token>, TokenizeError> {
        let error = |reason| TokenizeError { bytes: text.len(), reason };
        if self.is_empty() {
            return Err(error(TokenizeReason::NoTokenizer));
        }
        let run = self.pre_tokenizer(|name| stack::longest_match(text, name));
        let run = run.map_err(|TooLong { run, most }| error(TokenizeReason::Run { run, most }))?;
        let all = || self.tokenize_here(text, add_special, parse_special);
        match stack::with_stack_for(run, all) {
            Ok(tokens) => tokens.map_err(error),
            Err(refused) => Err(error(TokenizeReason::Thread(refused.to_string()))),
        }
    }

    /// Tokenises a text on the caller's stack.
    fn tokenize_here(
        self,
        text: &str,
        add_special: bool,
        parse_special: bool,
    ) -> Result<Vec<Token>, TokenizeReason> {
        let len = i32::try_from(text.len()).map_err(|_| TokenizeReason::TooLong)?;
        // No token stands for less than a byte; BOS and EOS are added to that.
        let mut tokens = vec![0; text.len() + 2];
        loop {
            let room = i32::try_from(tokens.len()).map_err(|_| TokenizeReason::TooLong)?;
            // SAFETY: text and tokens are valid for the lengths given.
            let n = guard(|| unsafe {
                calls::llama_tokenize(
                    self.ptr,
                    text.as_ptr().cast::<c_char>(),
                    len,
                    tokens.as_mut_ptr(),
                    room,
                    add_special,
                    parse_special,
                )
            });
            let n = n?;
            if n == i32::MIN {
                return Err(TokenizeReason::TooLong);
            }
            match usize::try_from(n) {
                Ok(n) => {
                    tokens.truncate(n);
                    return Ok(tokens.into_iter().map(Token).collect());
                }
                // A negative result is the number of tokens needed.
                Err(_) => tokens.resize(n.unsigned_abs() as usize, 0),
            }
        }
    }

    /// Hands on the name of its pre-tokenizer: empty if it has none, cut if it is long.
    fn pre_tokenizer<R>(self, f: impl FnOnce(&[u8]) -> R) -> R {
        let mut name = [0u8; 64];
        let key = c"tokenizer.ggml.pre".as_ptr();
        let (model, room) = (self.model.as_ptr(), name.len());
        // SAFETY: the model is alive; the value is cut to the room that is given, and terminated.
        let found = guard(|| unsafe {
            calls::llama_model_meta_val_str(model, key, name.as_mut_ptr().cast::<c_char>(), room)
        });
        let len = found.map_or(0, |len| usize::try_from(len).unwrap_or(0));
        f(&name[..len.min(room - 1)])
    }

    /// Appends the bytes of `token` to `out`. They may be part of a UTF-8 sequence. Control tokens
    /// are written only if `special`.
    ///
    /// # Errors
    /// [`CxxError`]: `token` is not one of the vocabulary's, or there is no memory.
    pub fn piece(self, token: Token, special: bool, out: &mut Vec<u8>) -> Result<(), CxxError> {
        let mut room = 64;
        loop {
            let start = out.len();
            out.resize(start + room, 0);
            // SAFETY: `out` has `room` bytes from `start`.
            let n = guard(|| unsafe {
                calls::llama_token_to_piece(
                    self.ptr,
                    token.0,
                    out.as_mut_ptr().add(start).cast::<c_char>(),
                    i32::try_from(room).unwrap_or(i32::MAX),
                    0,
                    special,
                )
            });
            out.truncate(start + n.as_ref().map_or(0, |&n| usize::try_from(n).unwrap_or(0)));
            let n = n?;
            match usize::try_from(n) {
                Ok(_) => return Ok(()),
                Err(_) => {
                    room = n.unsigned_abs() as usize;
                }
            }
        }
    }

    /// Whether `token` ends the generation.
    pub fn is_end(self, token: Token) -> bool {
        // SAFETY: the vocabulary lives with the model; unknown tokens are not ends.
        unsafe { sys::llama_vocab_is_eog(self.ptr, token.0) }
    }

    /// The token that the model expects at the beginning of a document, if any.
    pub fn leading(self) -> Option<Token> {
        // SAFETY: the vocabulary lives with the model.
        let (wanted, token) =
            unsafe { (sys::llama_vocab_get_add_bos(self.ptr), sys::llama_vocab_bos(self.ptr)) };
        (wanted && token >= 0).then_some(Token(token))
    }

    /// The text of the token that begins a document, for chat templates.
    pub fn bos_text(self) -> Option<String> {
        // SAFETY: the vocabulary lives with the model.
        self.text(unsafe { sys::llama_vocab_bos(self.ptr) })
    }

    /// The text of the token that ends a document.
    pub fn eos_text(self) -> Option<String> {
        // SAFETY: the vocabulary lives with the model.
        self.text(unsafe { sys::llama_vocab_eos(self.ptr) })
    }

    fn text(self, token: i32) -> Option<String> {
        if token < 0 || usize::try_from(token).ok()? >= self.len() {
            return None;
        }
        // SAFETY: the token is in range; the string lives with the vocabulary.
        let text = unsafe { sys::llama_vocab_get_text(self.ptr, token) };
        // SAFETY: non-null is zero-terminated.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }
}
