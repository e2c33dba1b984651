//! Requests of `terrace attach`, and the end of models.

use crate::model::Model;
use crate::models::{AppliedUses, Live, Models, Pending, Reloaded, Task, descriptors};
use crate::record;
use crate::reload::{Change, find};
use crate::report::say;
use serde_json::{Value, json};
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, MutexGuard, Weak};
use std::time::{Duration, Instant};
use terrace_backend::warm::RunRecord;
use terrace_backend::{Weights, least_slots};
use terrace_host::peak_rss;
use terrace_lanes::{CountedUses, Lanes};
use terrace_model::ByteSize;
use terrace_model::identity::ModelIdentity;
use terrace_model::learn::LearnFile;
use terrace_plan::Budget;
use terrace_plan::model::expert_shapes;
use terrace_store::Store;

/// Time that a request waits for the program's next graph.
const NEXT_GRAPH: Duration = Duration::from_secs(2);

/// A model with its weights.
struct Held {
    weights: Arc<Weights>,
    model: Arc<Model>,
    number: usize,
    epoch: u64,
    record: Option<Arc<RunRecord>>,
}

impl Models {
    /// The models that are loaded. Dropping a `Held` may end its weights.
    fn held(&self) -> Vec<Held> {
        let state = self.state();
        let held = |live: &Live| {
            let weights = live.weights.upgrade()?;
            let (model, record) = (Arc::clone(&live.model), live.record.clone());
            Some(Held { weights, model, number: live.number, epoch: live.epoch, record })
        };
        let all = state.live.iter().filter_map(held).collect();
        drop(state);
        all
    }

    /// All models, and what they have done.
    pub fn report(&self) -> Value {
        let held = self.held();
        let one = |held: &Held| {
            let store = held.weights.store();
            loaded(held, &store)
        };
        self.whole_report(held.iter().map(one).collect())
    }

    fn whole_report(&self, loaded: Vec<Value>) -> Value {
        let budget = match self.state().budget {
            Budget::Auto => Value::Null,
            Budget::Bytes(size) => size.bytes().into(),
        };
        json!({
            "version": 1,
            "process": std::process::id(),
            "program": program(),
            "budget": budget,
            "models": loaded,
            "freed": self.records.freed(),
            "peak_rss_bytes": peak_rss().bytes(),
        })
    }

    /// Sets the budget of all models together. Slots become fewer or more in proportion, as far as each
    /// model allows; other weights stay.
    pub fn set_budget(&self, budget: ByteSize) -> Value {
        self.state().budget = Budget::Bytes(budget);
        let held = self.held();
        let resident: u64 = held.iter().map(|held| held.model.resident().bytes()).sum();
        let planned: u64 = held.iter().map(|held| held.model.slots().bytes()).sum();
        let slots = u128::from(budget.bytes().saturating_sub(resident));
        let mut models = Vec::new();
        for Held { weights, model, .. } in &held {
            let share = slots * u128::from(model.slots().bytes()) / u128::from(planned.max(1));
            let mut store = weights.store();
            let handle = store.budget_handle(least_slots(model.least_slots(), &weights.layout(), &store));
            let set = handle.set(ByteSize(u64::try_from(share).unwrap_or(u64::MAX)));
            // Otherwise it would happen with the next graph.
            let now = store.poll().err().map(|error| error.to_string());
            drop(store);
            let mut state = self.state();
            if let Some(live) = state.of(weights) {
                live.slots = set;
            }
            drop(state);
            models.push(json!({
                "path": model.path(),
                "resident": model.resident().bytes(),
                "slots": set.bytes(),
                "least_slots": handle.least().bytes(),
                "most_slots": handle.most().bytes(),
                "problem": now,
            }));
        }
        json!({"budget": budget.bytes(), "models": models})
    }

    /// Takes over the streamed tensors of models whose files were replaced, before the program's next
    /// graph. Waits for that, but not long.
    ///
    /// # Errors
    /// Why a model must stay as it is; nothing has changed then.
    pub fn reload(&self) -> Result<Value, String> {
        let held = self.held();
        let mut found = Vec::new();
        for Held { weights, model, .. } in &held {
            if let Some(change) = find(model)? {
                found.push((model.path(), change.len(), Arc::downgrade(weights), change));
            }
        }
        drop(held);
        let mut waiting: Vec<(String, usize, Receiver<Reloaded>)> = Vec::new();
        let mut state = self.state();
        // What an earlier request found is found again.
        state.pending.retain(|pending| !matches!(pending.task, Task::Reload(..)));
        for (path, tensors, weights, change) in found {
            let (done, result) = channel();
            state.pending.push(Pending { weights, task: Task::Reload(Box::new(change), done) });
            waiting.push((path, tensors, result));
        }
        self.waiting.store(!state.pending.is_empty(), Ordering::Relaxed);
        drop(state);
        let until = Instant::now() + NEXT_GRAPH;
        let one = |(path, tensors, result): (String, usize, Receiver<Reloaded>)| {
            let mut value = json!({"path": path, "tensors": tensors});
            match self.outcome(&result, until) {
                Some(Ok(epoch)) => value["epoch"] = epoch.into(),
                Some(Err(reason)) => value["problem"] = reason.into(),
                None => value["pending"] = true.into(),
            }
            value
        };
        let models: Vec<Value> = waiting.into_iter().map(one).collect();
        Ok(json!({"models": models}))
    }

    /// Has devices hold the experts that a learn file counts as used most, from the program's next graph
    /// on. Waits for that, but not long.
    ///
    /// # Errors
    /// Why the file is of no model that has copies.
    pub fn apply_learned(&self, file: &LearnFile) -> Result<Value, String> {
        if file.layers.is_empty() {
            return Err("no uses of experts in it".into());
        }
        let (mut found, mut reasons) = (Vec::new(), Vec::new());
        for Held { weights, model, .. } in self.held() {
            let header = &model.header.model;
            let shapes = expert_shapes(header);
            let fits =
                file.check(&ModelIdentity::of(header).name, &shapes).map_err(|misfit| misfit.to_string());
            let there = |()| match Lanes::of(&weights).get().is_some_and(Lanes::has_slots) {
                true => Ok(()),
                false => Err("no device holds copies of its experts".to_owned()),
            };
            match fits.and_then(there) {
                Ok(()) => {
                    found.push((model.path(), Arc::downgrade(&weights), CountedUses::of(file, &shapes)))
                }
                Err(reason) => reasons.push(format!("{}: {reason}", model.path())),
            }
        }
        if found.is_empty() {
            let none = || "no model is streamed".to_owned();
            return Err(if reasons.is_empty() { none() } else { reasons.join("; ") });
        }
        let mut waiting: Vec<(String, Receiver<AppliedUses>)> = Vec::new();
        let mut state = self.state();
        for (path, weights, uses) in found {
            let (done, result) = channel();
            // The last file counts.
            let same = |other: &Pending| Weak::ptr_eq(&other.weights, &weights);
            state.pending.retain(|other| !(same(other) && matches!(other.task, Task::Apply(..))));
            state.pending.push(Pending { weights, task: Task::Apply(uses, done) });
            waiting.push((path, result));
        }
        self.waiting.store(true, Ordering::Relaxed);
        drop(state);
        let until = Instant::now() + NEXT_GRAPH;
        let one = |(path, result): (String, Receiver<AppliedUses>)| match self.outcome(&result, until) {
            Some(Ok(applied)) => json!({
                "path": path,
                "candidates": applied.candidates,
                "exchanged": applied.exchanged,
                "layers_changed": applied.layers.len(),
                "layers": applied.layers.iter().map(|(layer, count)| (layer.0, count)).collect::<Vec<_>>(),
                "hot_experts": applied.held,
            }),
            Some(Err(reason)) => json!({"path": path, "problem": reason}),
            None => json!({"path": path, "pending": true}),
        };
        let models: Vec<Value> = waiting.into_iter().map(one).collect();
        Ok(json!({"models": models}))
    }

    /// The outcome of what waits for the next graph; `None` if none has begun until then, or it does not
    /// come about.
    fn outcome<T>(&self, result: &Receiver<T>, until: Instant) -> Option<T> {
        let early = result.recv_timeout(until.saturating_duration_since(Instant::now()));
        // What is being done already takes as long as it takes.
        let taken = || !self.waiting.load(Ordering::Relaxed);
        early.ok().or_else(|| taken().then(|| result.recv().ok()).flatten())
    }

    /// Applies what waits, between two graphs.
    pub fn apply(&self) {
        let mut state = self.state();
        let pending = std::mem::take(&mut state.pending);
        self.waiting.store(false, Ordering::Relaxed);
        drop(state);
        for Pending { weights, task } in pending {
            let Some(weights) = weights.upgrade() else { continue };
            // The requests may have ended.
            match task {
                Task::Reload(change, done) => {
                    let result = self.take_over(&weights, *change);
                    if let Err(error) = &result {
                        say(format_args!("nothing was reloaded: {error}"));
                    }
                    let _ = done.send(result);
                }
                Task::Apply(uses, done) => {
                    let _ = done.send(copy_most_used(&weights, &uses));
                }
            }
        }
    }

    fn take_over(&self, weights: &Arc<Weights>, change: Change) -> Reloaded {
        let mut state = self.state();
        let mut files = state.of(weights).ok_or("the model has been unloaded")?.files.clone();
        drop(state);
        let identities = change.header.identities();
        let before = descriptors(&identities);
        change.apply(weights, &mut files)?;
        let mut state = self.state();
        let live = state.of(weights).ok_or("the model has been unloaded")?;
        live.fds.extend(descriptors(&identities).difference(&before));
        live.files = files;
        live.epoch += 1;
        let (count, epoch) = (change.len(), live.epoch);
        live.model = Arc::new(live.model.with_header(change.header));
        let path = live.model.path();
        drop(state);
        say(format_args!(
            "{count} tensors of {path} were reloaded; the program's keys and values are still those of the old ones"
        ));
        Ok(epoch)
    }

    /// A model's weights end: the program has freed it.
    pub fn freed(&self, weights: &Weights) {
        let mut state = self.state();
        let live = state.live.iter().position(|live| std::ptr::eq(live.weights.as_ptr(), weights));
        let live = live.map(|index| state.live.remove(index));
        drop(state);
        let Some(Live { model, number, epoch, record, .. }) = live else { return };
        if let Some(record) = record {
            record::save(&record);
        }
        let mut store = weights.store();
        record::end(number, weights, &mut store, &self.settings);
        let mut report = record::report(&model, weights, &store);
        report["epoch"] = epoch.into();
        drop(store);
        self.records.free(report);
        if self.settings.stats.is_some() {
            self.write_stats(self.report());
        }
    }

    /// The process ends, perhaps in the middle of a graph: writes what it can without waiting long.
    pub fn exit(&self) {
        let held = self.held();
        let mut reports = Vec::new();
        for held in &held {
            if let Some(record) = &held.record {
                record::save(record);
            }
            if let Some(mut store) = patiently(&held.weights) {
                record::end(held.number, &held.weights, &mut store, &self.settings);
                reports.push(loaded(held, &store));
            }
        }
        if self.settings.stats.is_some() && !reports.is_empty() {
            self.write_stats(self.whole_report(reports));
        }
        // Others may be using them: the process's end is that of all.
        std::mem::forget(held);
    }

    fn write_stats(&self, report: Value) {
        if let Some(path) = &self.settings.stats {
            record::write(path, &record::STATS_FILE, "stats", "", |out| writeln!(out, "{report}"));
        }
    }
}

/// Has devices hold the experts with the most uses, in place of those with fewer.
fn copy_most_used(weights: &Weights, uses: &[CountedUses]) -> AppliedUses {
    let (mut store, mut lanes) = (weights.store(), Lanes::of(weights));
    let lanes = lanes.get_mut().ok_or("no device holds copies of its experts")?;
    let go_on = &mut || ControlFlow::Continue(());
    let applied = lanes.apply(uses, &mut store, go_on).map_err(|error| error.to_string())?;
    if applied.lost.is_empty() {
        return Ok(applied);
    }
    let (lost, copied) = (applied.lost.join("; "), applied.exchanged);
    Err(format!("{lost}; the CPU computes the experts it had copies of ({copied} were copied before)"))
}

fn loaded(held: &Held, store: &Store) -> Value {
    let mut report = record::report(&held.model, &held.weights, store);
    report["epoch"] = held.epoch.into();
    report
}

/// The store, if no graph runs within a second.
fn patiently(weights: &Weights) -> Option<MutexGuard<'_, Store>> {
    let until = Instant::now() + Duration::from_secs(1);
    loop {
        if let Some(store) = weights.idle_store() {
            return Some(store);
        }
        if Instant::now() > until {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The name of the program's file.
fn program() -> Option<String> {
    let path = std::env::current_exe().ok()?;
    Some(path.file_name()?.to_string_lossy().into_owned())
}
