//! Facts about an answer that go beyond the APIs.

use super::progress::Progress;
use super::reading::Done;
use serde_json::{Value, json as object};
use terrace_engine::{Answer, ExpertsUsed};

/// Facts for which the objects of the APIs have no field. One state of the model computed all
/// tokens if the two epochs are equal.
pub fn facts(done: &Done) -> Value {
    let answer = &done.answer;
    let mut facts = object!({
        "epoch_first": answer.epochs.0,
        "epoch_last": answer.epochs.1,
        "stop": answer.stop,
        "stop_string": answer.stop_string,
        "queued_ms": answer.queued_ms,
        "timings": answer.timings,
    });
    if !done.unenforced.is_empty() {
        facts["unenforced"] = done.unenforced.as_slice().into();
    }
    if let Some(used) = &answer.experts {
        facts["experts"] = experts(used);
    }
    if let Some(lossy) = &answer.lossy {
        facts["lossy"] = serde_json::to_value(lossy).expect("numbers and names");
    }
    facts
}

/// llama-server's times of an answer.
pub fn timings(answer: &Answer) -> Value {
    let (timings, tokens) = (&answer.timings, answer.tokens.len());
    let prompt = answer.prompt_tokens - answer.reused;
    // Like the rate, without the first token, which comes with the prompt.
    let per_token = if timings.decode_tps > 0.0 { 1e3 / timings.decode_tps } else { 0.0 };
    let mut value = object!({
        "cache_n": answer.reused,
        "prompt_n": prompt,
        "prompt_ms": timings.prompt_ms,
        "prompt_per_token_ms": each(timings.prompt_ms, prompt),
        "prompt_per_second": timings.prompt_tps,
        "predicted_n": tokens,
        "predicted_ms": timings.decode_ms,
        "predicted_per_token_ms": per_token,
        "predicted_per_second": timings.decode_tps,
    });
    if timings.drafted > 0 {
        value["draft_n"] = timings.drafted.into();
        value["draft_n_accepted"] = timings.accepted.into();
    }
    value
}

fn each(ms: f64, n: usize) -> f64 {
    if n > 0 { ms / n as f64 } else { 0.0 }
}

/// llama-server's `prompt_progress`.
pub fn progress(progress: &Progress) -> Value {
    object!({
        "total": progress.total,
        "cache": progress.reused,
        "processed": progress.processed,
        "time_ms": progress.ms,
    })
}

/// llama-server's times while the prompt is evaluated.
pub fn progress_timings(progress: &Progress) -> Value {
    let Progress { reused, processed, ms, .. } = *progress;
    let evaluated = processed - reused;
    object!({
        "cache_n": reused,
        "prompt_n": evaluated,
        "prompt_ms": ms,
        "prompt_per_token_ms": each(ms, evaluated),
        "prompt_per_second": if ms > 0.0 { evaluated as f64 / ms * 1e3 } else { 0.0 },
        "predicted_n": 0,
        "predicted_ms": 0.0,
        "predicted_per_token_ms": 0.0,
        "predicted_per_second": 0.0,
    })
}

/// Uses of experts meanwhile, with the names that the hot cache of
/// adrianhoehne/llama.cpp has for its updates: a slot is a pair of token and expert.
fn experts(used: &ExpertsUsed) -> Value {
    let all = used.hot + used.cold;
    object!({
        "hot_slots": used.hot,
        "cold_slots": used.cold,
        "hit_rate": if all > 0 { used.hot as f64 / all as f64 } else { 0.0 },
        "hot_experts": used.held,
        "candidates": used.candidates,
        "exchanged": used.exchanged,
        "layers_changed": used.layers_changed,
        "ram_hits": used.store.hits,
        "ram_misses": used.store.misses,
        "ram_joined": used.store.joined,
        "read_bytes": used.store.bytes_read.bytes(),
        "shared": used.shared,
    })
}
