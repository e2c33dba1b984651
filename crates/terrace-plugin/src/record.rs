//! Records of a model's run: its counters, which experts it used, its reads and waits.

use crate::copies;
use crate::model::Model;
use crate::report::say;
use crate::settings::Settings;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use terrace_backend::warm::RunRecord;
use terrace_backend::{ExpertUsage, TRACE_FILE, TraceRecorder, Weights};
use terrace_plan::model::expert_groups;
use terrace_platform::own_file::{Form, OwnFile};
use terrace_store::part_file::PartFile;
use terrace_store::timeline::{self, SPANS};
use terrace_store::{LayerReport, Store, StoreReport};

/// Reports of freed models that are kept; older ones are forgotten.
const MOST_FREED: usize = 64;

/// Reports of all models of a process.
pub const STATS_FILE: OwnFile = OwnFile::new(
    "statistics of a process",
    Form::JsonKeys(&["version", "process", "program", "models", "freed"]),
);

/// The records of all models of the process.
#[derive(Default)]
pub struct Records {
    /// Reports of models that were freed.
    freed: Mutex<Vec<Value>>,
}

impl Records {
    /// Reports of models that were freed, oldest first.
    pub fn freed(&self) -> Vec<Value> {
        self.freed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps a freed model's report.
    pub fn free(&self, report: Value) {
        let mut freed = self.freed.lock().unwrap_or_else(PoisonError::into_inner);
        if freed.len() == MOST_FREED {
            freed.remove(0);
        }
        freed.push(report);
    }
}

/// Begins to record what the settings ask for. Returns the model's record, if it is
/// kept.
pub fn begin(model: &Model, weights: &Weights, settings: &Settings) -> Option<RunRecord> {
    if settings.trace.is_some() {
        let alignment = weights.store().engine().alignment;
        let recorder = TraceRecorder::new(&model.header.model, &weights.layout(), alignment);
        weights.observer().recorder = Some(recorder);
    }
    if settings.timeline.is_some() {
        weights.store().record_timeline(SPANS);
    }
    let groups = expert_groups(&model.header.model);
    // Recorded traces are replayed from empty slots.
    if settings.trace.is_some() || groups.is_empty() {
        return None;
    }
    let dir = settings.records.as_ref();
    if dir.is_none() && settings.learned.is_none() {
        return None;
    }
    let layers = groups.iter().map(|group| (group.layer, group.experts));
    let usage = Arc::new(ExpertUsage::new(layers, &weights.layout()));
    weights.observer().usage = Some(Arc::clone(&usage));
    let (mut record, wrong) = match RunRecord::open(dir?, &model.header.model) {
        Ok(opened) => opened,
        Err(error) => {
            say(format_args!("no record of the model is kept: {error}"));
            return None;
        }
    };
    if let Some(error) = wrong {
        say(format_args!("{error}; the file will be rewritten"));
    }
    record.count_uses(&usage);
    Some(record)
}

/// Saves a model's record.
pub fn save(record: &RunRecord) {
    if let Err(error) = record.save() {
        say(format_args!("cannot save the model's record: {error}"));
    }
}

/// Ends the recording, and writes the files of the process's model with this number, counted from 1.
/// Does nothing the second time.
pub fn end(number: usize, weights: &Weights, store: &mut Store, settings: &Settings) {
    let recorder = weights.observer().recorder.take();
    if let (Some(path), Some(recorder)) = (&settings.trace, recorder) {
        let full = recorder.is_full();
        let bytes = recorder.finish(settings.cache.cache_policy.to_string(), &store.stats());
        let cut = if full { ", without the end: it became too long" } else { "" };
        write(&numbered(path, number), &TRACE_FILE, "trace", cut, |out| out.write_all(&bytes));
    }
    let timeline = store.take_timeline();
    if let (Some(path), Some(timeline)) = (&settings.timeline, timeline) {
        let cut = if timeline.dropped() > 0 { ", without the end: it is full" } else { "" };
        write(&numbered(path, number), &timeline::FILE, "timeline", cut, |out| {
            timeline.write_chrome(|block| store.spec(block), out).map(|_| ())
        });
    }
}

/// The file of the model with this number: `file`, `file.2`, and so on.
fn numbered(path: &Path, number: usize) -> PathBuf {
    if number == 1 {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

/// Writes a file whole or not at all, and tells the user.
pub fn write(
    path: &Path,
    kind: &'static OwnFile,
    what: &str,
    cut: &str,
    write: impl FnOnce(&mut std::io::BufWriter<&std::fs::File>) -> std::io::Result<()>,
) {
    let written = PartFile::create(path, kind).and_then(|file| file.finish(write));
    match written {
        Ok(size) => say(format_args!("{what}: {size} bytes in {}{cut}", path.display())),
        Err(error) => say(format_args!("{what}: {}: {error}", path.display())),
    }
}

/// Work of a model, in the words of `run --json`.
pub fn report(model: &Model, weights: &Weights, store: &Store) -> Value {
    let stats = store.stats();
    let layers: Vec<LayerReport> = store.layer_stats().iter().map(LayerReport::from).collect();
    let foretold = weights.foretold();
    json!({
        "path": model.path(),
        "plan": model.planned(),
        "store": StoreReport { budget_now: store.capacity().bytes(), ..StoreReport::new(&stats, store.engine().gbps) },
        "slots_in_use": stats.resident.bytes(),
        "foretold": {"chosen": foretold.chosen, "guessed": foretold.guessed},
        "layers": layers,
        "hot_experts": copies::report(weights),
    })
}
