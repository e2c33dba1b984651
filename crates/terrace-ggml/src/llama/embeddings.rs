//! Embeddings that a context leaves, and what a model says of them.

use super::context::Context;
use super::load::Model;
use super::token::Token;
use super::vocab::Vocab;
use crate::cxx::{calls, guard};
use llama_cpp_sys_2 as sys;
use std::ffi::CStr;

impl Model {
    /// Number of values of an embedding.
    pub fn embedding_width(&self) -> usize {
        // SAFETY: the model is alive.
        usize::try_from(unsafe { sys::llama_model_n_embd_out(self.as_ptr()) }).unwrap_or(0)
    }

    /// Number of scores of the classification head; 1 if the model has none.
    pub fn classes(&self) -> usize {
        // SAFETY: the model is alive.
        usize::try_from(unsafe { sys::llama_model_n_cls_out(self.as_ptr()) }).unwrap_or(0)
    }

    /// The text that asks how well a document (`{document}`) answers a query (`{query}`), if the
    /// model has one.
    ///
    /// # Panics
    /// If llama.cpp cannot allocate a few dozen bytes.
    pub fn rank_template(&self) -> Option<String> {
        let name = c"rerank".as_ptr();
        // SAFETY: the model is alive, and the name ends with a zero.
        let template = guard(|| unsafe { calls::llama_model_chat_template(self.as_ptr(), name) });
        let template = template.expect("memory for a key");
        // SAFETY: non-null is a zero-terminated string owned by the model.
        (!template.is_null()).then(|| unsafe { CStr::from_ptr(template) }.to_string_lossy().into_owned())
    }
}

/// The tokens around and between two texts that belong together; `None` where the model wants none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairTokens {
    /// Before the first text.
    pub begin: Option<Token>,
    /// After each text.
    pub end: Option<Token>,
    /// Between the texts.
    pub separator: Option<Token>,
}

impl Vocab<'_> {
    /// The tokens around and between two texts.
    pub fn pair(self) -> PairTokens {
        let token = |id: i32| (id >= 0).then_some(Token(id));
        let vocab = self.as_ptr();
        // SAFETY: the vocabulary lives with the model; these are getters of fields.
        unsafe {
            let separator = token(sys::llama_vocab_sep(vocab));
            let end = token(sys::llama_vocab_eos(vocab)).or(separator);
            PairTokens {
                begin: self.leading(),
                end: end.filter(|_| sys::llama_vocab_get_add_eos(vocab)),
                separator: separator.filter(|_| sys::llama_vocab_get_add_sep(vocab)),
            }
        }
    }
}

impl Context {
    /// Returns true if a token sees only those before it. Otherwise a text has to be one graph.
    pub fn is_causal(&self) -> bool {
        // SAFETY: the context is alive.
        unsafe { sys::llama_get_causal_attn(self.as_const_ptr().cast_mut()) }
    }

    /// The last call's result for a sequence: the pooled embedding of the sequence's tokens in
    /// the call, or scores. `None` without pooling, and if the call had no token of it.
    pub fn embedding(&mut self, sequence: u32) -> Option<&[f32]> {
        let (width, sequence) = (self.embedding_width(), i32::try_from(sequence).ok()?);
        // SAFETY: the context is alive.
        let values = unsafe { sys::llama_get_embeddings_seq(self.as_ptr(), sequence) };
        // SAFETY: non-null is as many floats, which live until the next decode (&mut self).
        (!values.is_null()).then(|| unsafe { std::slice::from_raw_parts(values, width) })
    }

    /// The embeddings of all tokens of the last call, in its order. Empty with pooling.
    pub fn token_embeddings(&mut self) -> &[f32] {
        let values = self.embedding_width() * self.output_rows();
        // SAFETY: the context is alive; the rows are put into the order of the batch.
        let rows = unsafe { sys::llama_get_embeddings(self.as_ptr()) };
        if rows.is_null() || !self.keeps_token_embeddings() {
            return &[];
        }
        // SAFETY: without pooling there is a row for each output, which live until the next decode
        // (&mut self).
        unsafe { std::slice::from_raw_parts(rows, values) }
    }
}
