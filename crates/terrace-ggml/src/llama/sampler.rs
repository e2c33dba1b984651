//! Choosing the next token.

use super::context::Context;
use super::token::Token;
use crate::cxx::{CxxError, calls, guard_assertions};
use llama_cpp_sys_2 as sys;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ptr::NonNull;

/// Sampling parameters, with the meanings and the order of llama.cpp's samplers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Temperature. If 0 or less, the most likely token is chosen and all other parameters are
    /// ignored.
    pub temp: f32,
    /// Keeps the `k` most likely tokens; all if 0 or less.
    pub top_k: i32,
    /// Keeps the most likely tokens that together have this probability; all if 1.
    pub top_p: f32,
    /// Drops tokens less likely than this fraction of the most likely one's probability; none if 0.
    pub min_p: f32,
    /// Seed of the random choice.
    pub seed: u32,
}

impl Default for Sampling {
    /// llama.cpp's defaults, with a seed from the system.
    fn default() -> Self {
        // RandomState is seeded by the system, and one random number is enough here.
        let seed = RandomState::new().build_hasher().finish() as u32;
        Self { temp: 0.8, top_k: 40, top_p: 0.95, min_p: 0.05, seed }
    }
}

impl Sampling {
    /// Always the most likely token.
    pub fn greedy() -> Self {
        Self { temp: 0.0, seed: 0, ..Self::default() }
    }
}

/// A chain of samplers with its random state.
#[derive(Debug)]
pub struct Sampler {
    ptr: NonNull<sys::llama_sampler>,
}

// SAFETY: a sampler chain has no thread affinity; `&mut self` makes its use exclusive.
unsafe impl Send for Sampler {}

impl Sampler {
    /// Builds the chain: greedy, or top-k → top-p → min-p → temperature → random choice.
    ///
    /// # Panics
    /// If llama.cpp cannot allocate a few hundred bytes.
    pub fn new(sampling: &Sampling) -> Self {
        // SAFETY: constructors with plain arguments; the chain takes ownership of the samplers
        // added to it.
        let chain = guard_assertions(|| unsafe {
            let chain = calls::llama_sampler_chain_init(sys::llama_sampler_chain_default_params());
            if sampling.temp <= 0.0 {
                calls::llama_sampler_chain_add(chain, calls::llama_sampler_init_greedy());
            } else {
                calls::llama_sampler_chain_add(chain, calls::llama_sampler_init_top_k(sampling.top_k));
                calls::llama_sampler_chain_add(chain, calls::llama_sampler_init_top_p(sampling.top_p, 1));
                calls::llama_sampler_chain_add(chain, calls::llama_sampler_init_min_p(sampling.min_p, 1));
                calls::llama_sampler_chain_add(chain, calls::llama_sampler_init_temp(sampling.temp));
                calls::llama_sampler_chain_add(chain, calls::llama_sampler_init_dist(sampling.seed));
            }
            chain
        });
        Self { ptr: chain.ok().and_then(NonNull::new).expect("memory for a sampler") }
    }

    /// Samples from the last computed logits and accepts the token.
    ///
    /// # Errors
    /// [`CxxError`]: no memory for the candidates.
    pub fn sample(&mut self, context: &mut Context) -> Result<Token, CxxError> {
        // SAFETY: both are alive; -1 is the last output row, which a successful decode with outputs
        // leaves.
        let id = guard_assertions(|| unsafe {
            calls::llama_sampler_sample(self.ptr.as_ptr(), context.as_ptr(), -1)
        });
        id.map(Token)
    }

    /// Samples from a row of [`Context::outputs`] (0-based) and accepts the token.
    ///
    /// # Errors
    /// As [`Sampler::sample`].
    ///
    /// # Panics
    /// If the last call has left no such row.
    pub fn sample_row(&mut self, context: &mut Context, row: usize) -> Result<Token, CxxError> {
        let from_end = context.rows().checked_sub(row).filter(|&n| n > 0).expect("a row of the last call");
        let index = -i32::try_from(from_end).expect("at most a batch of rows");
        // SAFETY: both are alive. Negative numbers count rows from the last one, and the row
        // exists.
        let id = guard_assertions(|| unsafe {
            calls::llama_sampler_sample(self.ptr.as_ptr(), context.as_ptr(), index)
        });
        id.map(Token)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // SAFETY: owned, freed once; frees the chain's members.
        unsafe { sys::llama_sampler_free(self.ptr.as_ptr()) }
    }
}
