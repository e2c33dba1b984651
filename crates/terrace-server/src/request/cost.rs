//! The memory that a request's answers take before they are computed: lists and windows of samplers,
//! and copies of prompts, once per answer.

use super::answer_settings::AnswerSettings;
use crate::app::Ready;
use crate::error::ApiError;
use terrace_model::ByteSize;
use terrace_serving::Prompt;

/// Most memory for the answers to a request before they are computed.
pub const MOST_MEMORY: ByteSize = ByteSize::mib(256);
/// Bytes for each token of a prompt: in the job, and its text where answers show it.
const TOKEN: u64 = 16;

/// Checks that the answers to these prompts do not take too much memory before they are computed.
///
/// # Errors
/// They take more than [`MOST_MEMORY`].
pub fn check(wanted: &AnswerSettings, prompts: &[Prompt], ready: &Ready) -> Result<(), ApiError> {
    let (answers, facts) = (wanted.answers as u64, &ready.facts);
    let stops: usize = wanted.stop.iter().map(String::len).sum();
    let one = wanted.sampling.memory(facts.context, facts.vocabulary) + ByteSize(stops as u64);
    let tokens: u64 = prompts.iter().map(|prompt| prompt.len() as u64).sum();
    let all = (prompts.len() as u64)
        .saturating_mul(one.bytes())
        .saturating_add(tokens.saturating_mul(TOKEN))
        .saturating_mul(answers);
    let all = ByteSize(all);
    if all <= MOST_MEMORY {
        return Ok(());
    }
    let count = answers.saturating_mul(prompts.len() as u64);
    Err(ApiError::request(format!(
        "{count} responses would take {all} before they are generated, but at most {MOST_MEMORY} are allowed: request fewer responses, or shorter windows and lists of the samplers"
    )))
}
