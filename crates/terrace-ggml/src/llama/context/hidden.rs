//! Hidden states that a context leaves, and contexts of the layers that predict from them.

use super::{Context, ContextError, ContextParams};
use crate::cxx::{calls, guard};
use crate::llama::load::Model;
use llama_cpp_sys_2 as sys;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

unsafe extern "C" {
    /// `hidden.cpp`.
    fn terrace_context_keep_hidden(context: *mut sys::llama_context, outputs_only: bool);
    /// `hidden.cpp`.
    fn terrace_context_mtp_layer(context: *mut sys::llama_context, layer: i32);
}

/// Which hidden states a call leaves: what the last layer gave for a token, normed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hidden {
    /// Those of tokens that leave logits.
    Outputs,
    /// Those of all tokens. Some architectures compute the last layer for tokens without logits then,
    /// which they do not otherwise.
    All,
}

impl Model {
    /// Number of layers that predict the tokens after the next one.
    pub fn mtp_layers(&self) -> u32 {
        // SAFETY: the model is alive.
        u32::try_from(unsafe { sys::llama_model_n_layer_nextn(self.as_ptr()) }).unwrap_or(0)
    }
}

impl Context {
    /// Makes a context of the model's MTP layers, which were [loaded](crate::llama::LoadParams::mtp). It takes
    /// tokens with hidden states ([`Batch::push_after`](crate::llama::Batch::push_after)), and leaves the
    /// logits and the hidden states of tokens that are wanted.
    ///
    /// # Errors
    /// As [`Context::new`].
    pub fn of_mtp(
        model: Arc<Model>,
        params: &ContextParams,
        interrupt: Arc<AtomicBool>,
    ) -> Result<Self, ContextError> {
        let mut context = Self::make(model, params, interrupt, None, true)?;
        context.keep_hidden(Hidden::Outputs);
        Ok(context)
    }

    /// Has each call leave hidden states.
    pub fn keep_hidden(&mut self, which: Hidden) {
        self.hidden = Some(which);
        // SAFETY: the context is alive; two switches are stored.
        unsafe { terrace_context_keep_hidden(self.as_ptr(), which == Hidden::Outputs) };
    }

    /// Chooses the layer that a context of MTP layers computes, from 0 on.
    ///
    /// # Panics
    /// If the model has no such layer.
    pub fn choose_mtp_layer(&mut self, layer: u32) {
        assert!(self.is_of_mtp() && layer < self.layers_of_mtp(), "MTP layer {layer}");
        let layer = i32::try_from(layer).expect("a small number");
        // SAFETY: the context is alive; a number is stored, and the model has this layer.
        unsafe { terrace_context_mtp_layer(self.as_ptr(), layer) };
    }

    /// The hidden states that the last call left, one row of values per token, in the order of the
    /// batch. Empty if it left none.
    ///
    /// # Errors
    /// A device threw while it computed.
    pub fn hidden(&mut self) -> Result<&[f32], ContextError> {
        let rows = match self.hidden {
            None => 0,
            Some(Hidden::Outputs) => self.output_rows(),
            Some(Hidden::All) => self.last_tokens(),
        };
        if rows == 0 {
            return Ok(&[]);
        }
        let context = self.as_ptr();
        // SAFETY: the context is alive; rows are waited for here, where a device may throw.
        let values = guard(|| unsafe { calls::terrace_context_hidden(context) })?;
        if values.is_null() {
            return Ok(&[]);
        }
        // SAFETY: llama.cpp keeps a row of this width for each such token of the last call, until the
        // next one (&mut self).
        Ok(unsafe { std::slice::from_raw_parts(values, rows * self.hidden_width()) })
    }
}
