//! Replies of a process, as text.

use crate::commands::experts::described;
use serde::Deserialize;
use serde_json::Value;
use std::fmt::Write;
use terrace_lanes::HotExpertsReport;
use terrace_model::{ByteSize, printable};
use terrace_store::StoreReport;

/// A model of a process.
struct Model<'a> {
    value: &'a Value,
    store: Option<StoreReport>,
}

impl<'a> Model<'a> {
    fn all(report: &'a Value) -> Vec<Self> {
        let models = report["models"].as_array().map(Vec::as_slice).unwrap_or_default();
        let model = |value: &'a Value| {
            let store = serde_json::from_value(value["store"].clone()).ok();
            Self { value, store }
        };
        models.iter().map(model).collect()
    }

    fn size(&self, of: &Value) -> ByteSize {
        ByteSize(of.as_u64().unwrap_or(0))
    }
}

/// The process and its models. `before` is what it said `seconds` ago.
pub fn stats(report: &Value, before: Option<(&Value, f64)>) -> String {
    let text = |value: &Value| printable(value.as_str().unwrap_or("?"));
    let mut out = String::new();
    let budget = match report["budget"].as_u64() {
        Some(budget) => ByteSize(budget).to_string(),
        None => "auto".to_owned(),
    };
    let peak = ByteSize(report["peak_rss_bytes"].as_u64().unwrap_or(0));
    let process = &report["process"];
    let _ = writeln!(
        out,
        "{}, process {process}: budget {budget}, at most {peak} of RAM so far",
        text(&report["program"])
    );
    let earlier = before.map(|(report, seconds)| (Model::all(report), seconds));
    let models = Model::all(report);
    if models.is_empty() {
        out.push_str("no model is streamed\n");
    }
    for (index, model) in models.iter().enumerate() {
        let plan = &model.value["plan"];
        let _ = writeln!(out, "\nmodel    {}", text(&model.value["path"]));
        let epoch = model.value["epoch"].as_u64().filter(|&epoch| epoch > 0);
        let epoch = epoch.map_or_else(String::new, |epoch| format!("; reloaded, epoch {epoch}"));
        let _ = writeln!(
            out,
            "streamed {} of {} tensors; {} stay with the program{epoch}",
            model.size(&plan["managed_bytes"]),
            plan["managed_tensors"],
            model.size(&plan["resident"]),
        );
        let Some(store) = &model.store else { continue };
        let in_use = model.size(&model.value["slots_in_use"]);
        let _ = writeln!(out, "slots    {in_use} of {} in use", ByteSize(store.budget_now));
        let _ = writeln!(
            out,
            "uses     {} hits, {} read, {} waited for: {:.1} % hits; {} evicted",
            store.hits,
            store.misses,
            store.joined,
            store.hit_rate * 100.0,
            store.evictions
        );
        let _ = writeln!(
            out,
            "reads    {} in {} requests, {:.2} GB/s while reading",
            ByteSize(store.bytes_read),
            store.requests,
            store.read_gbps
        );
        let _ = writeln!(
            out,
            "time     {:.2} s waiting, {:.2} s computing experts",
            store.stall_ms / 1e3,
            store.experts_ms / 1e3
        );
        if let Ok(copies) = HotExpertsReport::deserialize(&model.value["hot_experts"]) {
            let _ = writeln!(out, "copies   {copies}");
        }
        let same = |(before, seconds): &(Vec<Model<'_>>, f64)| {
            let before = before.get(index).filter(|before| before.value["path"] == model.value["path"])?;
            Some((before.store?, *seconds))
        };
        if let Some((before, seconds)) = earlier.as_ref().and_then(same) {
            let uses = |store: &StoreReport| store.hits + store.misses + store.joined;
            let more = uses(store).saturating_sub(uses(&before));
            let hits = store.hits.saturating_sub(before.hits) as f64 / more.max(1) as f64 * 100.0;
            let read = ByteSize((store.bytes_read.saturating_sub(before.bytes_read) as f64 / seconds) as u64);
            let waited = (store.stall_ms - before.stall_ms).max(0.0) / 10.0 / seconds;
            let _ = writeln!(
                out,
                "now      {more} uses, {hits:.1} % hits; {read} per second; {waited:.0} % waiting"
            );
        }
    }
    let freed = report["freed"].as_array().map_or(0, Vec::len);
    if freed > 0 {
        let _ = writeln!(out, "\nfreed since the start: {freed} models");
    }
    out
}

/// Result of a reload.
pub fn reload(answer: &Value) -> String {
    let models = answer["models"].as_array().map(Vec::as_slice).unwrap_or_default();
    if models.is_empty() {
        return "no model file was replaced".to_owned();
    }
    let mut out = String::new();
    for model in models {
        let path = printable(model["path"].as_str().unwrap_or("?"));
        let tensors = &model["tensors"];
        let _ = match (model["problem"].as_str(), model["epoch"].as_u64()) {
            (Some(problem), _) => writeln!(out, "{path}: nothing was reloaded: {}", printable(problem)),
            (None, Some(epoch)) => writeln!(
                out,
                "{path}: {tensors} tensors now come from the new file (epoch {epoch}); the program's KV cache still holds what the old ones computed"
            ),
            (None, None) => writeln!(
                out,
                "{path}: {tensors} tensors will come from the new file with the program's next graph; the program is idle"
            ),
        };
    }
    out
}

/// Result of a learn file.
pub fn apply(answer: &Value) -> String {
    let mut out = String::new();
    for model in answer["models"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let path = printable(model["path"].as_str().unwrap_or("?"));
        let _ = match (model["problem"].as_str(), model["pending"].as_bool()) {
            (Some(problem), _) => writeln!(out, "{path}: {}", printable(problem)),
            (None, Some(true)) => writeln!(
                out,
                "{path}: the experts will be copied before the program's next graph; the program is idle"
            ),
            (None, _) => writeln!(out, "{path}: {}", described(model)),
        };
    }
    out
}

/// Result of a new budget.
pub fn budget(answer: &Value) -> String {
    let size = |value: &Value| ByteSize(value.as_u64().unwrap_or(0));
    let mut out = format!("budget {}\n", size(&answer["budget"]));
    for model in answer["models"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let problem =
            model["problem"].as_str().map_or_else(String::new, |text| format!(": {}", printable(text)));
        let _ = writeln!(
            out,
            "{}: slots of {} (from {} to {}) beside {} that stay with the program{problem}",
            printable(model["path"].as_str().unwrap_or("?")),
            size(&model["slots"]),
            size(&model["least_slots"]),
            size(&model["most_slots"]),
            size(&model["resident"]),
        );
    }
    out
}
