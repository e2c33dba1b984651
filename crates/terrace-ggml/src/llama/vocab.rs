//! Text to tokens and back.

use super::load::Model;
use super::specials::{Specials, TextPiece};
use super::stack::{self, TooLong};
use super::token::Token;
use crate::cxx::{CxxError, calls, guard, guard_assertions};
use llama_cpp_sys_2 as sys;
use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::ops::Range;

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

/// Number of special tokens in a text up to which llama.cpp itself looks for them.
const FEW: usize = 64;

/// A text that could not be tokenised.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot tokenise a text of {bytes} bytes: {reason}")]
pub struct TokenizeError {
    /// Its length.
    pub bytes: usize,
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
    /// The caller wants no more.
    #[error("it was stopped")]
    Stopped,
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

    /// Returns true if no text can be made of its tokens, or tokens of texts (a model without tokenizer).
    pub fn is_empty(self) -> bool {
        // SAFETY: the vocabulary lives with the model.
        self.len() == 0 || unsafe { sys::llama_vocab_type(self.ptr) } == sys::LLAMA_VOCAB_TYPE_NONE
    }

    /// The longest text of a token, in bytes. Looks at each token.
    pub fn longest_token(self) -> usize {
        let mut text = Vec::new();
        let mut length = |token| {
            text.clear();
            self.piece(Token(token), true, &mut text).map_or(0, |()| text.len())
        };
        (0..i32::try_from(self.len()).unwrap_or(i32::MAX)).map(&mut length).max().unwrap_or(0)
    }

    /// Returns true if each byte of a text, other than white space, is part of one of its tokens' texts, so
    /// that a text has at least as many tokens as its length over [`Vocab::longest_token`].
    pub fn covers_texts(self) -> bool {
        // SAFETY: the vocabulary lives with the model.
        let kind = unsafe { sys::llama_vocab_type(self.ptr) };
        kind == sys::LLAMA_VOCAB_TYPE_BPE || kind == sys::LLAMA_VOCAB_TYPE_SPM
    }

    pub(super) const fn as_ptr(self) -> *const sys::llama_vocab {
        self.ptr
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
        self.tokenize_while(text, add_special, parse_special, &|_| true)
    }

    /// Like [`Vocab::tokenize`], and asks, between the parts of a text with many special tokens,
    /// whether to go on, with the number of tokens so far.
    ///
    /// # Errors
    /// As [`Vocab::tokenize`], and [`TokenizeReason::Stopped`].
    pub fn tokenize_while(
        self,
        text: &str,
        add_special: bool,
        parse_special: bool,
        go_on: &(dyn Fn(usize) -> bool + Sync),
    ) -> Result<Vec<Token>, TokenizeError> {
        self.tokenize_cut(text, add_special, parse_special, go_on, FEW)
            .map_err(|reason| TokenizeError { bytes: text.len(), reason })
    }

    /// As [`Vocab::tokenize`], of a text whose special tokens llama.cpp looks for if there are up to
    /// `few` of them.
    ///
    /// # Errors
    /// As [`Vocab::tokenize`].
    #[cfg(feature = "testing")]
    pub fn tokenize_with_few(
        self,
        text: &str,
        add_special: bool,
        parse_special: bool,
        few: usize,
    ) -> Result<Vec<Token>, TokenizeReason> {
        self.tokenize_cut(text, add_special, parse_special, &|_| true, few)
    }

    /// Leaves texts with up to `few` special tokens to llama.cpp as they are.
    fn tokenize_cut(
        self,
        text: &str,
        add_special: bool,
        parse_special: bool,
        go_on: &(dyn Fn(usize) -> bool + Sync),
        few: usize,
    ) -> Result<Vec<Token>, TokenizeReason> {
        if self.is_empty() {
            return Err(TokenizeReason::NoTokenizer);
        }
        if !go_on(0) {
            return Err(TokenizeReason::Stopped);
        }
        let specials = self.model.specials.get_or_init(|| self.specials());
        let parts = specials.cut(text, parse_special, few);
        // A token's text may be half a character.
        let parts = parts.filter(|parts| parts.iter().all(|part| part.text_of(text).is_some()));
        let frame = parts.as_ref().and_then(|_| self.frame(add_special));
        let (Some(parts), Some((before, after))) = (parts, frame) else {
            let run = self.longest_match([text])?;
            let all = || self.tokenize_here(text, add_special, parse_special);
            return stack::with_stack_for(run, all)
                .unwrap_or_else(|e| Err(TokenizeReason::Thread(e.to_string())));
        };
        let run = self.longest_match(parts.iter().filter_map(|part| part.text_of(text)))?;
        let all = || {
            let mut tokens: Vec<Token> = before.into_iter().collect();
            // Where the tokens of a text are that was there before. Conversations repeat themselves, and
            // llama.cpp compiles regular expressions for each text.
            let mut seen: HashMap<&str, Range<usize>> = HashMap::new();
            for part in &parts {
                if !go_on(tokens.len()) {
                    return Err(TokenizeReason::Stopped);
                }
                match part {
                    TextPiece::Token(id) => tokens.push(Token(*id)),
                    TextPiece::Text(range) => {
                        let (part, from) = (&text[range.clone()], tokens.len());
                        match seen.get(part) {
                            Some(known) => tokens.extend_from_within(known.clone()),
                            // It has no special tokens, so they need not be looked for.
                            None => tokens.extend(self.tokenize_here(part, false, false)?),
                        }
                        seen.insert(part, from..tokens.len());
                    }
                }
            }
            tokens.extend(after);
            Ok(tokens)
        };
        stack::with_stack_for(run, all).unwrap_or_else(|e| Err(TokenizeReason::Thread(e.to_string())))
    }

    /// The longest match that the pre-tokenizer can make in one of these texts, in bytes.
    fn longest_match<'t>(self, texts: impl IntoIterator<Item = &'t str>) -> Result<usize, TokenizeReason> {
        self.pre_tokenizer(|name| {
            let mut longest = texts.into_iter().map(|text| stack::longest_match(text, name));
            longest.try_fold(0, |longest, run| Ok(longest.max(run?)))
        })
        .map_err(|TooLong { run, most }| TokenizeReason::Run { run, most })
    }

    /// The tokens that go before and after a text. `None` means that they cannot be told apart.
    fn frame(self, add_special: bool) -> Option<(Option<Token>, Option<Token>)> {
        let frame = self.tokenize_here("", add_special, false).ok()?;
        // SAFETY: the vocabulary lives with the model.
        let first = unsafe { sys::llama_vocab_get_add_bos(self.ptr) };
        match *frame {
            [] => Some((None, None)),
            [one] if first => Some((Some(one), None)),
            [one] => Some((None, Some(one))),
            [one, other] => Some((Some(one), Some(other))),
            _ => None,
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
            let n = guard_assertions(|| unsafe {
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
            let n = guard_assertions(|| unsafe {
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

    /// Returns true if `token` ends the generation.
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

    fn specials(self) -> Specials {
        let count = i32::try_from(self.len()).unwrap_or(i32::MAX);
        let attributes = |id| {
            // SAFETY: the vocabulary lives with the model, which is alive; the token is in range.
            unsafe { sys::llama_vocab_get_attr(self.ptr, id) as i32 }
        };
        let text = |id| {
            // SAFETY: as above; texts of tokens come from strings that end with a zero.
            unsafe { CStr::from_ptr(sys::llama_vocab_get_text(self.ptr, id)) }.to_bytes()
        };
        Specials::of(count, attributes, text)
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
