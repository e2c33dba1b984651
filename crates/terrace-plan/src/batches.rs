//! Plans of batches: how many sequences are computed at a time, and how long all requests take.
//!
//! With more sequences an expert is read for more tokens, but their keys and values take memory that the cache of experts
//! has otherwise. So each number is planned like a run of its own, and the one that is done first is taken.

use crate::error::PlanError;
use crate::machine::MachineProfile;
use crate::options::{Expected, ExpectedSource};
use crate::plan::Plan;
use crate::planning::plan;
use crate::wishes::Wishes;
use serde::Serialize;
use terrace_model::{ByteSize, ModelFile};

/// Most sequences that llama.cpp has room for.
pub const MAX_SEQUENCES: u32 = 256;
/// The numbers of sequences that are compared.
const COMPARED: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, MAX_SEQUENCES];
/// A larger number has to be so much faster: it takes memory.
const WORTH: f64 = 0.97;

/// The work of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BatchWork {
    /// Number of requests.
    pub requests: u32,
    /// Mean tokens of a prompt, and of an answer.
    pub prompt: u32,
    pub answer: u32,
    /// Tokens of the longest prompt and answer together: each sequence has a context for as many.
    pub context: u32,
}

/// A batch with so many sequences at a time.
#[derive(Clone, Debug, Serialize)]
pub struct BatchPlan {
    /// Number of sequences.
    pub sequences: u32,
    /// Memory of their contexts.
    pub contexts: ByteSize,
    /// Tokens that are generated per second, while no prompt is evaluated.
    pub decode_tok_s: f64,
    /// Bytes that are read for such a token.
    pub read_per_token: ByteSize,
    /// Prompt tokens per second, of several prompts together.
    pub prefill_tok_s: f64,
    /// Seconds until all requests are answered, without the load.
    pub seconds: f64,
    /// Generated tokens per second of all that time.
    pub tok_s: f64,
    /// The plan of the run.
    #[serde(skip)]
    pub plan: Plan,
}

/// Plans a batch with several numbers of sequences, or with one. Returns those that have room, the fewest sequences
/// first. `wishes.context.ctx`, if it is set, is the context of each.
///
/// # Errors
/// None has room; the reason is that of the fewest.
pub fn plan_batches(
    model: &ModelFile,
    machine: &MachineProfile,
    wishes: &Wishes,
    work: BatchWork,
    sequences: Option<u32>,
) -> Result<Vec<BatchPlan>, PlanError> {
    let useful = |n: &u32| *n <= work.requests.max(1).next_power_of_two();
    let compared = match sequences {
        Some(n) => vec![n.clamp(1, MAX_SEQUENCES)],
        None => COMPARED.into_iter().filter(useful).map(|n| n.min(work.requests.max(1))).collect(),
    };
    let mut all = Vec::new();
    for sequences in compared {
        match one(model, machine, wishes, work, sequences) {
            Ok(planned) => all.push(planned),
            // More have no room either.
            Err(error) if all.is_empty() => return Err(error),
            Err(_) => break,
        }
    }
    Ok(all)
}

/// The batch that is done first; of two that take about as long, the one with fewer sequences.
///
/// # Panics
/// There is none.
pub fn fastest(all: &[BatchPlan]) -> &BatchPlan {
    let first = all.first().expect("a batch");
    all.iter().fold(first, |best, next| if next.seconds < WORTH * best.seconds { next } else { best })
}

/// Wishes for a batch with so many sequences at a time.
pub fn batch_wishes(wishes: &Wishes, work: BatchWork, sequences: u32) -> Wishes {
    let mut wishes = wishes.clone();
    let context = &mut wishes.context;
    context.ctx = context.ctx.or(Some(work.context));
    (context.sequences, context.unified, context.outputs) = (sequences, false, sequences);
    wishes.clients = sequences;
    // Measured contexts are of other numbers.
    wishes.measured.clear();
    wishes.eviction = wishes.eviction.in_passes_of(sequences);
    wishes
}

fn one(
    model: &ModelFile,
    machine: &MachineProfile,
    wishes: &Wishes,
    work: BatchWork,
    sequences: u32,
) -> Result<BatchPlan, PlanError> {
    let mut wishes = batch_wishes(wishes, work, sequences);
    let source = ExpectedSource::Stated;
    // Keys grow to the whole answer; on average half of it is there.
    wishes.expected = Expected { prompt: work.prompt + work.answer / 2, output: work.answer, source };
    let plan_of = |wishes: &Wishes| plan(model, machine, wishes);
    let planned = plan_of(&wishes)?;
    let estimate = planned.estimate.clone();
    let (decode_tok_s, read_per_token) = estimate
        .map_or((f64::NAN, ByteSize::ZERO), |estimate| (estimate.decode_tok_s, estimate.read_per_token));
    // Slots that become free are filled several at a time, and their prompts share graphs.
    let graph = wishes.ubatch(model, machine.memory.available);
    let refilled = refilled_together(sequences as usize, work.answer.into()) as u32;
    let together = refilled.min(graph / work.prompt.max(1)).max(1);
    wishes.expected.prompt = (together * work.prompt).max(1);
    wishes.context.ctx = wishes.context.ctx.map(|tokens| tokens.max(wishes.expected.prompt));
    let prefill = plan_of(&wishes).ok().and_then(|plan| plan.estimate);
    let prefill_tok_s = prefill.map_or(f64::NAN, |estimate| estimate.prefill_tok_s);
    let requests = f64::from(work.requests);
    let generated = requests * f64::from(work.answer);
    let prompts = requests * f64::from(work.prompt);
    let seconds = generated / decode_tok_s + prompts / prefill_tok_s;
    Ok(BatchPlan {
        sequences,
        contexts: planned.context.ram,
        decode_tok_s,
        read_per_token,
        prefill_tok_s,
        seconds,
        tok_s: generated / seconds,
        plan: planned,
    })
}

/// Number of slots of a batch that are filled together, once so many are free. With B slots, answers of L tokens and
/// prompts whose shared pass takes as long as one of all slots, g at a time take L / (B - g/2) + 1/g passes an answer:
/// least at g = B sqrt(2/L).
pub fn refilled_together(slots: usize, answer: u64) -> usize {
    ((slots as f64 * (2.0 / answer.max(2) as f64).sqrt()) as usize).clamp(1, slots.div_ceil(2))
}
