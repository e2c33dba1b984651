//! Requests, and their answers.

use crate::models::Models;
use serde_json::{Value, json};
use terrace_host::attach::PROTOCOL;
use terrace_model::ByteSize;
use terrace_model::learn::LearnFile;

/// Does what a line asks for.
pub fn answer(line: &[u8], models: &Models) -> Value {
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| perform(line, models)));
    match done.unwrap_or_else(|_| Err("internal error".into())) {
        Ok(value) => json!({"version": PROTOCOL, "ok": value}),
        Err(reason) => failed(&reason),
    }
}

/// An answer that says why nothing was done.
pub fn failed(reason: &str) -> Value {
    json!({"version": PROTOCOL, "error": reason})
}

fn perform(line: &[u8], models: &Models) -> Result<Value, String> {
    let request: Value = serde_json::from_slice(line).map_err(|error| format!("not JSON: {error}"))?;
    if request["version"] != PROTOCOL {
        return Err(format!("this process understands version {PROTOCOL} of the protocol"));
    }
    match request["command"].as_str() {
        Some("stats") => Ok(models.report()),
        Some("reload") => models.reload(),
        Some("budget") => {
            let bytes = request["bytes"].as_u64().ok_or("`bytes` must be a number of bytes")?;
            Ok(models.set_budget(ByteSize(bytes)))
        }
        Some("apply") => {
            let text = request["learned"].to_string();
            let file = LearnFile::parse(text.as_bytes()).map_err(|error| format!("`learned`: {error}"))?;
            models.apply_learned(&file)
        }
        _ => Err("`command` must be stats, reload, budget or apply".into()),
    }
}
