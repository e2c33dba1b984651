//! Facts about an answer that go beyond the APIs.

use serde_json::{Value, json as object};
use terrace_engine::Answer;

/// Facts for which the objects of the APIs have no field. One state of the model computed all
/// tokens if the two epochs are equal.
pub fn facts(answer: &Answer) -> Value {
    object!({
        "epoch_first": answer.epochs.0,
        "epoch_last": answer.epochs.1,
        "stop": answer.stop,
        "stop_string": answer.stop_string,
        "queued_ms": answer.queued_ms,
        "timings": answer.timings,
    })
}
