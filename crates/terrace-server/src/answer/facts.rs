//! What every API's answers have beside what the API says.

use serde_json::{Value, json as object};
use terrace_engine::Answer;

/// What the objects of the APIs have no place for. The tokens are of one state of the model if the two epochs are equal.
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
