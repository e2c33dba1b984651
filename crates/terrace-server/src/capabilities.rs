//! Capabilities of a model.

use crate::app::Ready;
use terrace_engine::ChatTemplate;

/// Kinds of requests that a model can serve, in Ollama's terms. Waits for the chat template.
pub fn of_model(ready: &Ready) -> Vec<&'static str> {
    of(ready.facts.generates(), ready.facts.sees(), ready.template().ok())
}

/// As [`of_model`], of a model that need not be loaded.
pub fn of(generates: bool, sees: bool, template: Option<&ChatTemplate>) -> Vec<&'static str> {
    if !generates {
        return vec!["embedding"];
    }
    let has = |name| template.is_some_and(|template| template.can(name));
    let mut all = vec!["completion"];
    if has("supports_tools") {
        all.push("tools");
    }
    if has("supports_thinking") {
        all.push("thinking");
    }
    if sees {
        all.push("vision");
    }
    all
}
