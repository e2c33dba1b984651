//! Facts about an answer that go beyond the APIs.

use serde_json::{Value, json as object};
use terrace_engine::{Answer, ExpertsUsed};

/// Facts for which the objects of the APIs have no field. One state of the model computed all
/// tokens if the two epochs are equal.
pub fn facts(answer: &Answer) -> Value {
    let mut facts = object!({
        "epoch_first": answer.epochs.0,
        "epoch_last": answer.epochs.1,
        "stop": answer.stop,
        "stop_string": answer.stop_string,
        "queued_ms": answer.queued_ms,
        "timings": answer.timings,
    });
    if let Some(used) = &answer.experts {
        facts["experts"] = experts(used);
    }
    facts
}

/// What was done with experts meanwhile, with the names that the hot cache of
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
