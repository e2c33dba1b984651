//! Which experts a model's routers choose in stock llama.cpp, for measuring how closely a synthetic
//! model's routing resembles a trained one's.

use crate::backend::parked;
use crate::cxx::{CxxError, calls, copies, guard};
use crate::llama::{Model, Token};
use crate::log;
use llama_cpp_sys_2 as sys;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use terrace_model::{ExpertId, LayerId};

/// By layer: the chosen experts of every token, in the order of the tokens.
pub type Choices = BTreeMap<LayerId, Vec<Vec<ExpertId>>>;

/// Why routing could not be traced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RoutingError {
    /// No context could be made.
    #[error("cannot make a context of {tokens} tokens: {reason}")]
    Context {
        /// Tokens requested.
        tokens: u32,
        /// llama.cpp's reason.
        reason: String,
    },
    /// A decode call failed.
    #[error("decoding failed with code {code} after {tokens} tokens: {reason}")]
    Decode {
        /// llama.cpp's code.
        code: i32,
        /// Tokens decoded before.
        tokens: u32,
        /// llama.cpp's reason.
        reason: String,
    },
    /// llama.cpp threw.
    #[error(transparent)]
    Cxx(#[from] CxxError),
    /// The prompt is empty, or there are more tokens than a context can hold.
    #[error(
        "{prompt} prompt tokens and {generate} to generate: expected at least 1 prompt token, and at most {most} in all"
    )]
    Length {
        /// Prompt tokens.
        prompt: usize,
        /// Tokens to generate.
        generate: u32,
        /// Maximum of both together.
        most: u32,
    },
}

/// Maximum number of tokens of prompt and generation together.
const MAX_TOKENS: u32 = 1 << 17;

/// Evaluates `prompt` token by token, then generates `generate` tokens greedily. Returns the
/// choices for all tokens, and the generated tokens.
///
/// # Errors
/// [`RoutingError`]. A model without experts gives empty choices, not an error.
pub fn trace_routing(
    model: &Model,
    prompt: &[Token],
    generate: u32,
    threads: u16,
) -> Result<(Choices, Vec<Token>), RoutingError> {
    let length = || RoutingError::Length { prompt: prompt.len(), generate, most: MAX_TOKENS };
    let read = u32::try_from(prompt.len()).ok().filter(|&n| n > 0).ok_or_else(length)?;
    let tokens = read.checked_add(generate).filter(|&n| n <= MAX_TOKENS).ok_or_else(length)?;
    let mut choices = Choices::new();
    // SAFETY: returns plain values.
    let mut params = unsafe { sys::llama_context_default_params() };
    params.n_ctx = tokens;
    params.n_batch = 1;
    params.n_ubatch = 1;
    params.n_threads = i32::from(threads);
    params.n_threads_batch = i32::from(threads);
    params.cb_eval = Some(on_node);
    params.cb_eval_user_data = (&raw mut choices).cast();
    // SAFETY: the model outlives the context, which is freed below.
    let (raw, lines) =
        log::capture(|| guard(|| unsafe { calls::llama_init_from_model(model.as_ptr(), params) }));
    let raw = raw?;
    if raw.is_null() {
        return Err(RoutingError::Context { tokens, reason: lines.join("; ") });
    }
    let context = Context(raw);
    let mut generated = Vec::new();
    let vocab = model.vocab().len();
    for position in 0..tokens {
        let mut token = match prompt.get(position as usize) {
            Some(&token) => token,
            None => {
                let next = context.most_likely(vocab);
                generated.push(next);
                next
            }
        };
        context.decode(&mut token, position)?;
    }
    drop(context);
    Ok((choices, generated))
}

struct Context(*mut sys::llama_context);

impl Context {
    fn decode(&self, token: &mut Token, tokens: u32) -> Result<(), RoutingError> {
        let (code, lines) = log::capture(|| {
            // SAFETY: the context is alive; Token is a transparent i32, and the batch borrows it for
            // the call only.
            guard(|| unsafe {
                calls::llama_decode(self.0, sys::llama_batch_get_one((&raw mut *token).cast(), 1))
            })
        });
        match code? {
            0 => Ok(()),
            code => Err(RoutingError::Decode { code, tokens, reason: lines.join("; ") }),
        }
    }

    fn most_likely(&self, vocab: usize) -> Token {
        // SAFETY: a decode has succeeded, so its last row of logits exists: one float per token of
        // the vocabulary, valid until the next decode.
        let logits = unsafe { std::slice::from_raw_parts(sys::llama_get_logits_ith(self.0, -1), vocab) };
        let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(token, _)| token);
        Token(i32::try_from(best).expect("token ids are i32"))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: owned, freed once.
        unsafe { sys::llama_free(self.0) }
    }
}

/// Called by ggml's scheduler before (`ask`) and after each node.
unsafe extern "C" fn on_node(node: *mut sys::ggml_tensor, ask: bool, data: *mut c_void) -> bool {
    parked::guard("the evaluation callback", true, || {
        // SAFETY: ggml passes a live tensor; its name is terminated within the array.
        let name = unsafe { CStr::from_ptr((*node).name.as_ptr()) }.to_string_lossy();
        let layer = name.strip_prefix("ffn_moe_topk-").and_then(|layer| layer.parse().ok());
        let Some(layer) = layer else { return !ask };
        if !ask {
            // SAFETY: `data` points to the `Choices` of the current call, which nothing else
            // accesses during it.
            let choices = unsafe { &mut *data.cast::<Choices>() };
            // SAFETY: the node is computed and alive.
            choices.entry(LayerId(layer)).or_default().extend(unsafe { rows(node) });
        }
        true
    })
}

/// # Safety
/// `node` is a live, computed tensor of i32.
unsafe fn rows(node: *mut sys::ggml_tensor) -> Vec<Vec<ExpertId>> {
    // SAFETY: the caller's contract.
    let (ne, nb) = unsafe { ((*node).ne, (*node).nb) };
    let row = |i: i64| {
        let mut ids = vec![0i32; ne[0] as usize];
        // SAFETY: row `i` begins at `i * nb[1]` and has `ne[0]` contiguous i32: the node is a view
        // of sorted ids.
        unsafe { copies::get(node, i as usize * nb[1], &mut ids) }.expect("the CPU computes");
        ids.into_iter().map(|id| ExpertId(id.unsigned_abs())).collect()
    };
    (0..ne[1]).map(row).collect()
}
