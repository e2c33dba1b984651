//! Embeddings that are computed in place of tokens.

use super::context::{Context, ContextError};
use crate::cxx::{calls, guard};
use llama_cpp_sys_2 as sys;

/// Embeddings of one sequence, which a model reads in place of tokens. Reused.
#[derive(Clone, Debug, Default)]
pub struct Embedded {
    values: Vec<f32>,
    /// Four dimensions for each embedding, one after the other.
    places: [Vec<i32>; 4],
    positions: Vec<i32>,
    counts: Vec<i32>,
    sequence: i32,
    wanted: Vec<i8>,
    two_way: bool,
}

impl Embedded {
    /// Replaces the contents by embeddings: `values`, an input of the model's width for each of
    /// `places`, its position in the dimensions of M-RoPE (models without that use the first). With
    /// `two_way` they see each other in both directions, and are computed as one graph. The logits of
    /// the last one are kept if `wanted`.
    pub fn put(
        &mut self,
        sequence: u32,
        values: &[f32],
        places: impl Iterator<Item = [i32; 4]>,
        two_way: bool,
        wanted: bool,
    ) {
        self.values.clear();
        self.values.extend_from_slice(values);
        self.places.iter_mut().for_each(Vec::clear);
        for place in places {
            self.places.iter_mut().zip(place).for_each(|(dimension, at)| dimension.push(at));
        }
        let n = self.places[0].len();
        self.positions.clear();
        self.places.iter().for_each(|dimension| self.positions.extend_from_slice(dimension));
        self.sequence = i32::try_from(sequence).unwrap_or(i32::MAX);
        self.counts.clear();
        self.counts.resize(n, 1);
        self.wanted.clear();
        self.wanted.resize(n, 0);
        if let Some(last) = self.wanted.last_mut() {
            *last = i8::from(wanted);
        }
        self.two_way = two_way;
    }

    /// Number of embeddings.
    pub const fn len(&self) -> usize {
        self.counts.len()
    }

    /// Returns true if there is nothing to compute.
    pub const fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Number of logits rows that they leave.
    pub fn outputs(&self) -> usize {
        usize::from(self.wanted.last().is_some_and(|&wanted| wanted != 0))
    }
}

impl Context {
    /// Computes embeddings in place of tokens: at most a graph
    /// ([`ubatch`](super::ContextParams::ubatch)).
    ///
    /// # Errors
    /// As [`Context::decode_batch`].
    ///
    /// # Panics
    /// If the embeddings have not the width of the model's input.
    pub fn decode_embeddings(&mut self, embedded: &mut Embedded) -> Result<(), ContextError> {
        let n = embedded.len();
        assert_eq!(embedded.values.len(), n * self.input_width(), "embeddings of the model's width");
        self.places.clear();
        self.places.resize(n, &raw mut embedded.sequence);
        let raw = sys::llama_batch {
            n_tokens: i32::try_from(n).expect("at most a batch"),
            token: std::ptr::null_mut(),
            embd: embedded.values.as_mut_ptr(),
            pos: embedded.positions.as_mut_ptr(),
            n_seq_id: embedded.counts.as_mut_ptr(),
            seq_id: self.places.as_mut_ptr(),
            logits: embedded.wanted.as_mut_ptr(),
        };
        let outputs = embedded.outputs();
        if embedded.two_way {
            self.set_causal(false)?;
        }
        // SAFETY: values have the model's width for each embedding, and positions four dimensions, of
        // which llama.cpp reads as many as the model has; the other arrays are as long as the batch.
        // All outlive the call, which does not touch `places`.
        let computed = unsafe { self.submit(raw, outputs) };
        if embedded.two_way {
            self.set_causal(true)?;
        }
        computed
    }

    /// Number of values of a token's embedding where the model reads it.
    fn input_width(&self) -> usize {
        // SAFETY: the model of a live context is alive.
        let width = unsafe { sys::llama_model_n_embd_inp(sys::llama_get_model(self.as_const_ptr())) };
        usize::try_from(width).unwrap_or(0)
    }

    /// With `causal`, later tokens see only those before them.
    fn set_causal(&mut self, causal: bool) -> Result<(), ContextError> {
        let context = self.as_ptr();
        // SAFETY: the context is alive.
        guard(|| unsafe { calls::llama_set_causal_attn(context, causal) })?;
        Ok(())
    }
}
