//! Choosing the next token.

use super::context::Context;
use super::held::Held;
use super::load::Model;
use super::sampling::{Purpose, Sampling, Thoughts, Trigger};
use super::token::Token;
use crate::common::CHECK;
use crate::common::text::Text;
use crate::cxx::bounds::Bounds;
use crate::cxx::{CxxError, guard_assertions, guard_bounded};
use crate::log;
use crate::pin::numbers;
use llama_cpp_sys_2 as sys;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

/// Chooses tokens, and remembers those that it has chosen.
#[derive(Debug)]
pub struct Sampler(Chooser);

#[derive(Debug)]
enum Chooser {
    /// The most likely token, the first of several: what llama.cpp's greedy sampler chooses.
    MostLikely,
    /// llama.cpp's samplers.
    Common {
        sampler: NonNull<c_void>,
        /// True if it has to see the prompt.
        looks_back: bool,
        /// Bounds of choosing a token, if a grammar decides which ones can be chosen.
        bounds: Option<Bounds>,
        /// Its memory.
        held: Held,
        /// True if it follows a grammar or a schema that was given, not one of tools.
        constrained: bool,
        /// It points into its vocabulary.
        _model: Arc<Model>,
    },
}

// SAFETY: llama.cpp's samplers have no thread affinity, and only read their model, which is `Sync`;
// `&mut self` makes their use exclusive.
unsafe impl Send for Sampler {}

impl Sampler {
    /// Always the most likely token.
    pub const fn most_likely() -> Self {
        Self(Chooser::MostLikely)
    }

    /// Makes a sampler for contexts of `context` tokens.
    ///
    /// # Errors
    /// What llama.cpp says of the parameters or the grammar.
    pub fn new(sampling: &Sampling, model: &Arc<Model>, context: usize) -> Result<Self, CxxError> {
        if sampling.takes_most_likely() && !suppresses(model) {
            return Ok(Self::most_likely());
        }
        common(sampling, model, context).map(Self)
    }

    /// Returns true if it follows a grammar or a schema that was given, not one of tools.
    pub const fn is_constrained(&self) -> bool {
        matches!(self.0, Chooser::Common { constrained: true, .. })
    }

    /// Notes the tokens of a prompt, for samplers that look back. Negative numbers stand for embeddings,
    /// of which they see nothing.
    ///
    /// # Errors
    /// [`CxxError`]: no memory.
    pub fn see(&mut self, prompt: &[i32]) -> Result<(), CxxError> {
        let Chooser::Common { sampler, looks_back: true, .. } = &self.0 else { return Ok(()) };
        let sampler = sampler.as_ptr();
        guard_assertions(|| {
            for &token in prompt.iter().filter(|&&token| token >= 0) {
                // SAFETY: the sampler is alive; the token is one of the model's.
                unsafe { terrace_sampler_see(sampler, token) };
            }
        })
    }

    /// Chooses a token from a row of [`Context::outputs`] (0-based), and notes it, for as long as it has not
    /// `ended`: a grammar can take very long. After an error the sampler is of no use any more.
    ///
    /// # Errors
    /// [`CxxError`]: no memory for the candidates; the grammar allows no token, or takes more steps or
    /// memory than it may; it has ended.
    ///
    /// # Panics
    /// If the last call has left no such row.
    pub fn sample_row(
        &mut self,
        context: &mut Context,
        row: usize,
        ended: &impl Fn() -> bool,
    ) -> Result<Token, CxxError> {
        let (sampler, bounds, held) = match &mut self.0 {
            Chooser::MostLikely => return Ok(most_likely(context.row(row))),
            Chooser::Common { sampler, bounds, held, .. } => (sampler.as_ptr(), *bounds, held),
        };
        let index = context.index_from_end(row);
        // SAFETY: both are alive, and the row exists.
        let sample = || unsafe { terrace_sampler_sample(sampler, context.as_ptr(), index) };
        let Some(bounds) = bounds else { return guard_assertions(sample).map(Token) };
        // The context has waited for its devices, so no driver is called within bounds.
        let (token, taken) = guard_bounded(bounds, ended, sample);
        tracing::trace!(steps = taken.steps, bytes = taken.bytes, "grammar");
        let fits = held.add(taken.bytes);
        let token = token?;
        fits?;
        Ok(Token(token))
    }
}

/// Tokens with their probabilities after the samplers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Candidates {
    /// The probability of the token that was chosen.
    pub chosen: f32,
    /// The most likely tokens, in falling order.
    pub top: Vec<(Token, f32)>,
}

impl Sampler {
    /// The `most` most likely of the tokens among which the last one, `token`, was chosen. Those that
    /// samplers have ruled out are not among them, or have a probability of 0.
    ///
    /// # Errors
    /// [`CxxError`]: no memory.
    pub fn candidates(&mut self, token: Token, most: usize) -> Result<Candidates, CxxError> {
        let Chooser::Common { sampler, .. } = &self.0 else {
            let top = if most > 0 { vec![(token, 1.0)] } else { Vec::new() };
            return Ok(Candidates { chosen: 1.0, top });
        };
        let sampler = sampler.as_ptr();
        let (mut tokens, mut probs, mut chosen) = (vec![0; most], vec![0.0; most], 0.0);
        // SAFETY: the sampler is alive and has chosen a token; both lists have room for `most`.
        let count = guard_assertions(|| unsafe {
            let (tokens, probs) = (tokens.as_mut_ptr(), probs.as_mut_ptr());
            terrace_sampler_candidates(sampler, tokens, probs, most, &raw mut chosen)
        })?;
        let top = tokens.into_iter().map(Token).zip(probs).take(count).collect();
        Ok(Candidates { chosen, top })
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        if let Chooser::Common { sampler, .. } = &self.0 {
            // SAFETY: owned, freed once; destructors do not throw.
            unsafe { terrace_sampler_free(sampler.as_ptr()) }
        }
    }
}

fn most_likely(logits: &[f32]) -> Token {
    let mut best = 0;
    for (index, &logit) in logits.iter().enumerate() {
        if logit > logits[best] {
            best = index;
        }
    }
    Token(i32::try_from(best).expect("tokens are numbered by i32"))
}

/// Returns true if the model has tokens that it never writes.
fn suppresses(model: &Model) -> bool {
    let mut count = 0;
    // SAFETY: the model is alive; writes a number.
    unsafe {
        sys::llama_vocab_get_suppress_tokens(sys::llama_model_get_vocab(model.as_ptr()), &raw mut count)
    };
    count > 0
}

fn common(sampling: &Sampling, model: &Arc<Model>, context: usize) -> Result<Chooser, CxxError> {
    let context = i32::try_from(context).unwrap_or(i32::MAX);
    // llama.cpp allocates windows whole, and no text is longer than the context.
    let last_n = |n: i32| if n < 0 { context } else { n.min(context) };
    let breakers: Vec<_> = sampling.dry_sequence_breakers.iter().map(|text| Text::of(text)).collect();
    let order: Vec<_> = sampling.chain().iter().map(|kind| kind.number()).collect();
    let pair = |&(Token(token), bias): &(Token, f32)| sys::llama_logit_bias { token, bias };
    let bias: Vec<_> = sampling.logit_bias.iter().map(pair).collect();
    let grammar = sampling.grammar.clone().unwrap_or_default();
    let triggers: Vec<_> = grammar.triggers.iter().map(RawTrigger::of).collect();
    let preserved: Vec<_> = grammar.preserved.iter().map(|text| Text::of(text)).collect();
    let thoughts = sampling.thoughts.clone().unwrap_or_default();
    let ends: Vec<_> = thoughts.ends.iter().map(|text| Text::of(text)).collect();
    let Thoughts { tokens, start, message, .. } = &thoughts;
    let begun = if sampling.grammar.is_some() { &grammar.begun } else { &thoughts.begun };
    let raw = Raw {
        seed: folded(sampling.seed),
        temp: sampling.temp,
        dynatemp_range: sampling.dynatemp_range,
        dynatemp_exponent: sampling.dynatemp_exponent,
        top_k: sampling.top_k,
        top_p: sampling.top_p,
        min_p: sampling.min_p,
        typical_p: sampling.typical_p,
        top_n_sigma: sampling.top_n_sigma,
        xtc_probability: sampling.xtc_probability,
        xtc_threshold: sampling.xtc_threshold,
        min_keep: sampling.min_keep,
        repeat_last_n: last_n(sampling.repeat_last_n),
        repeat_penalty: sampling.repeat_penalty,
        frequency_penalty: sampling.frequency_penalty,
        presence_penalty: sampling.presence_penalty,
        dry_multiplier: sampling.dry_multiplier,
        dry_base: sampling.dry_base,
        dry_allowed_length: sampling.dry_allowed_length,
        dry_penalty_last_n: last_n(sampling.dry_penalty_last_n),
        mirostat: sampling.mirostat,
        mirostat_tau: sampling.mirostat_tau,
        mirostat_eta: sampling.mirostat_eta,
        adaptive_target: sampling.adaptive_target,
        adaptive_decay: sampling.adaptive_decay,
        ignore_eos: sampling.ignore_eos,
        dry_breakers: breakers.as_ptr(),
        n_dry_breakers: breakers.len(),
        order: order.as_ptr(),
        n_order: order.len(),
        bias: bias.as_ptr(),
        n_bias: bias.len(),
        grammar: Text::of(&grammar.text),
        grammar_kind: match grammar.purpose {
            Purpose::User => numbers::GRAMMAR_USER,
            Purpose::Format => numbers::GRAMMAR_OUTPUT_FORMAT,
            Purpose::Tools => numbers::GRAMMAR_TOOL_CALLS,
        },
        grammar_lazy: grammar.lazy,
        triggers: triggers.as_ptr(),
        n_triggers: triggers.len(),
        preserved: preserved.as_ptr(),
        n_preserved: preserved.len(),
        generation_prompt: Text::of(begun),
        thought_tokens: tokens.map_or(-1, |tokens| i32::try_from(tokens).unwrap_or(i32::MAX)),
        thought_start: Text::of(start),
        thought_ends: ends.as_ptr(),
        n_thought_ends: ends.len(),
        thought_message: Text::of(message),
    };
    let vocabulary = model.vocab().len() as u64;
    // Reasons for a grammar that is refused are only logged.
    let ((made, taken), lines) = log::capture(|| {
        crate::llama::fatal::report_in_one_line();
        // SAFETY: the model, and everything that the parameters point to, live during the call.
        let make = || unsafe { terrace_sampler_new(model.as_ptr(), &raw const raw) };
        guard_bounded(making(vocabulary), &|| false, make)
    });
    let made = made.map_err(|error| match (error, lines.last()) {
        (CxxError::Exception(text), Some(line)) => CxxError::Exception(format!("{text}: {line}")),
        (error, _) => error,
    })?;
    let sampler = NonNull::new(made).ok_or(CxxError::Other)?;
    let bounds = sampling.grammar.is_some().then(|| choosing(vocabulary));
    let mut held = Held::new(most_held(vocabulary));
    let fits = held.add(taken.bytes);
    let constrained = sampling.grammar.as_ref().is_some_and(|grammar| grammar.purpose != Purpose::Tools);
    let looks_back = sampling.looks_back();
    let chooser =
        Chooser::Common { sampler, looks_back, bounds, held, constrained, _model: Arc::clone(model) };
    fits?;
    Ok(chooser)
}

/// Bounds of making a sampler. A grammar was checked before, and the response's part of the prompt is
/// accepted twice.
const fn making(vocabulary: u64) -> Bounds {
    // Texts that end repetitions are looked for in all tokens, one after the other.
    Bounds { steps: 4 * CHECK.steps + 256 * vocabulary, bytes: 4 * CHECK.bytes + 1024 * vocabulary, ..CHECK }
}

/// Bounds of choosing one token within a grammar: a second of computing where the vocabulary is small.
/// Ordinary JSON schemas take some thousand steps (docs/decisions/0083).
const fn choosing(vocabulary: u64) -> Bounds {
    Bounds { steps: 2_000_000 + 16 * vocabulary, bytes: (64 << 20) + 1024 * vocabulary, stack: 1 << 20 }
}

/// Memory that a sampler may hold between two tokens, in bytes.
const fn most_held(vocabulary: u64) -> u64 {
    (64 << 20) + 64 * vocabulary
}

/// `LLAMA_DEFAULT_SEED`, which stands for a random one.
const RANDOM_SEED: u32 = u32::MAX;

/// llama.cpp's random numbers have 32 bits of seed, of which the largest stands for a random one.
const fn folded(seed: u64) -> u32 {
    let folded = (seed ^ (seed >> 32)) as u32;
    if folded == RANDOM_SEED { folded - 1 } else { folded }
}

/// `terrace_trigger` of sampler.cpp.
#[repr(C)]
struct RawTrigger<'t> {
    kind: c_int,
    token: i32,
    value: Text<'t>,
}

impl<'t> RawTrigger<'t> {
    fn of(trigger: &'t Trigger) -> Self {
        Self { kind: trigger.kind, token: trigger.token, value: Text::of(&trigger.value) }
    }
}

/// `terrace_sampling` of sampler.cpp.
#[repr(C)]
struct Raw<'t> {
    seed: u32,
    temp: f32,
    dynatemp_range: f32,
    dynatemp_exponent: f32,
    top_k: i32,
    top_p: f32,
    min_p: f32,
    typical_p: f32,
    top_n_sigma: f32,
    xtc_probability: f32,
    xtc_threshold: f32,
    min_keep: i32,
    repeat_last_n: i32,
    repeat_penalty: f32,
    frequency_penalty: f32,
    presence_penalty: f32,
    dry_multiplier: f32,
    dry_base: f32,
    dry_allowed_length: i32,
    dry_penalty_last_n: i32,
    mirostat: i32,
    mirostat_tau: f32,
    mirostat_eta: f32,
    adaptive_target: f32,
    adaptive_decay: f32,
    ignore_eos: bool,
    dry_breakers: *const Text<'t>,
    n_dry_breakers: usize,
    order: *const i32,
    n_order: usize,
    bias: *const sys::llama_logit_bias,
    n_bias: usize,
    grammar: Text<'t>,
    grammar_kind: c_int,
    grammar_lazy: bool,
    triggers: *const RawTrigger<'t>,
    n_triggers: usize,
    preserved: *const Text<'t>,
    n_preserved: usize,
    generation_prompt: Text<'t>,
    thought_tokens: i32,
    thought_start: Text<'t>,
    thought_ends: *const Text<'t>,
    n_thought_ends: usize,
    thought_message: Text<'t>,
}

unsafe extern "C-unwind" {
    fn terrace_sampler_new(model: *const sys::llama_model, sampling: *const Raw<'_>) -> *mut c_void;
    fn terrace_sampler_free(sampler: *mut c_void);
    fn terrace_sampler_see(sampler: *mut c_void, token: i32);
    fn terrace_sampler_candidates(
        sampler: *mut c_void,
        tokens: *mut i32,
        probs: *mut f32,
        room: usize,
        chosen: *mut f32,
    ) -> usize;
    fn terrace_sampler_sample(sampler: *mut c_void, context: *mut sys::llama_context, row: c_int) -> i32;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_seeds_are_as_they_are() {
        assert_eq!((folded(0), folded(42), folded(u64::from(u32::MAX) - 1)), (0, 42, u32::MAX - 1));
        assert_ne!(folded(u64::from(u32::MAX)), RANDOM_SEED);
        assert_ne!(folded(7), folded((1 << 32) | 7));
    }

    #[test]
    fn the_first_of_several_most_likely_tokens_is_taken() {
        assert_eq!(most_likely(&[1.0, 3.0, 2.0, 3.0]), Token(1));
        assert_eq!(most_likely(&[f32::NEG_INFINITY, -2.0]), Token(1));
    }
}
