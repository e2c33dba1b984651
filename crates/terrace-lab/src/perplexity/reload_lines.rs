//! Messages about reloads, in lines that programs parse: those of ik_llama.cpp.

use std::collections::BTreeSet;
use std::path::Path;
use terrace_cli::error::CliError;
use terrace_cli::term::{one_line, say};
use terrace_engine::{Engine, EngineError, Refusal, ReloadReport, Take};
use terrace_ggml::gguf;

/// Names the tensors that nothing is computed with, so that nobody measures what replacing them costs: the
/// engine leaves out some, as layers that only drafts use, and llama.cpp others.
///
/// # Errors
/// The model's header cannot be read.
pub fn say_unused(engine: &Engine, model: &Path) -> Result<(), CliError> {
    let names = engine.provenance().into_iter().map(|tensor| tensor.info.name);
    let mut used: BTreeSet<String> = names.collect();
    for (unused, _) in engine.unused_tensors() {
        used.remove(&unused);
    }
    for tensor in gguf::read(model)?.tensors.iter().filter(|tensor| !used.contains(&tensor.name)) {
        say!("model has unused tensor {} (size = {} bytes) -- ignoring", tensor.name, tensor.extent.len);
    }
    Ok(())
}

/// Replaces the tensors that have changed, except those that cannot be replaced, and names all of them.
///
/// # Errors
/// Nothing was replaced.
pub fn reload(engine: &mut Engine) -> Result<ReloadReport, CliError> {
    let report = engine.reload_taking(Take::Acceptable).map_err(EngineError::from)?;
    report.refused.iter().for_each(say_refusal);
    say_swapped(&report);
    if finds_something(&report) {
        let (epoch, ms) = (report.epoch, report.seconds * 1e3);
        say!("epoch {epoch}: {} tensors in {ms:.1} ms", report.swapped.len());
    }
    Ok(report)
}

/// Names the tensors that were replaced, and those of new files that have the same bytes.
pub fn say_swapped(report: &ReloadReport) {
    for tensor in &report.unchanged {
        say!("reloaded tensor '{tensor}': the same bytes");
    }
    for swapped in &report.swapped {
        say!("reloaded tensor '{}': {}", swapped.tensor, swapped.change());
    }
}

/// Says why a tensor keeps its bytes.
pub fn say_refusal(refusal: &Refusal) {
    let path = refusal.path.as_ref().map(|path| format!(" ({})", path.display())).unwrap_or_default();
    let reason = one_line(&format!("{}{path}", refusal.reason));
    say!("hotswap: tensor '{}' cannot be hot-swapped: {reason}", refusal.tensor);
}

/// Returns true if a file was written to, which is a reason to measure even if its bytes are the same.
pub fn finds_something(report: &ReloadReport) -> bool {
    !report.is_empty() || !report.unchanged.is_empty()
}
