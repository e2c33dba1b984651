//! The object that `run --json` prints and `bench` reads.

pub mod summary;

use crate::preset::Applied;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use terrace_backend::PieceReport;
use terrace_engine::{Answer, Engine, Timings};
use terrace_host::peak_rss;
use terrace_lanes::HotExpertsReport;
use terrace_store::{CopyReport, LayerReport, StoreReport};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// The generated text, with U+FFFD in place of bytes that are not UTF-8.
    pub text: String,
    /// The generated tokens.
    pub tokens: Vec<i32>,
    /// Number of tokens of the prompt.
    pub prompt_tokens: usize,
    /// Why generation ended.
    pub stop: String,
    /// The model's epochs at the first and at the last token.
    #[serde(default)]
    pub epochs: (u64, u64),
    /// `full-resident`, `expert-streaming`, ... or `stock`.
    pub mode: String,
    pub plan: serde_json::Value,
    /// Times.
    pub timings: TimingReport,
    /// Counters of the store. `None` in stock runs and if nothing streams.
    pub store: Option<StoreReport>,
    /// The part of these counters from the first token to the last.
    #[serde(default)]
    pub decode: Option<StoreReport>,
    /// Accuracy of the guesses of the next layer's experts. `None` in stock runs.
    #[serde(default)]
    pub foretold: Option<ForetoldReport>,
    /// Work of devices with copies of experts. `None` if they hold none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot_experts: Option<HotExpertsReport>,
    /// The loss. `None` if generation is exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lossy: Option<serde_json::Value>,
    /// Layers that devices computed as a whole, in order. Empty if there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_layers: Vec<DeviceLayers>,
    /// Counters by layer, in order; weights of no layer come last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<LayerReport>,
    /// Reads of each file with replicas and of each of these. Empty without replicas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<CopyReport>,
    /// Settings of a preset. `None` if it sets nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<Applied>,
    /// Mapped weights that had moved into memory of the process when generation ended.
    #[serde(default)]
    pub moved_bytes: u64,
    /// Peak resident memory of the process.
    pub peak_rss_bytes: u64,
}

/// Times of one run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TimingReport {
    /// Time until the model could be used, in milliseconds.
    pub load_ms: f64,
    /// Prompt tokens per second.
    pub prompt_tps: f64,
    /// Passes per second while generating: tokens, with one that ends the text.
    pub decode_tps: f64,
    /// Time from the prompt to the first token, in milliseconds.
    pub ttft_ms: f64,
    /// Wall time of evaluating the prompt, in milliseconds.
    #[serde(default)]
    pub prompt_ms: f64,
    /// Wall time from the first token to the last, in milliseconds.
    #[serde(default)]
    pub decode_ms: f64,
    /// Passes over the layers in this time: one for each token after the first, and one for a token
    /// that ends the text; fewer with drafts.
    #[serde(default)]
    pub decode_passes: usize,
    /// Drafts that these passes checked, and those that were right.
    #[serde(default)]
    pub drafted: usize,
    #[doc = "See [`TimingReport::drafted`]."]
    #[serde(default)]
    pub accepted: usize,
}

/// Accuracy of the guesses of the routers' choices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ForetoldReport {
    /// Experts chosen in MoE blocks for which there was a guess.
    pub chosen: u64,
    /// Those of them that were guessed.
    pub guessed: u64,
}

/// Layers that a device computed as a whole, as far as Terrace sees it: the time between two pieces
/// of a graph that Terrace computed, and from the last one until logits were there. Graphs of a prompt
/// that leave no logits are not waited for, so what follows Terrace's last piece is not counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceLayers {
    /// The device that holds the layers, or the one that computes with weights in RAM; `devices` if
    /// it is not known which of several.
    pub device: String,
    pub first_layer: u32,
    pub last_layer: u32,
    /// Number of times that they were computed.
    pub pieces: u64,
    /// Their time, transfers included, in milliseconds.
    pub device_ms: f64,
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl ForetoldReport {
    /// Reads the counters of an engine. `None` in stock runs.
    pub fn of(engine: &Engine) -> Option<Self> {
        engine.foretold().map(|f| Self { chosen: f.chosen, guessed: f.guessed })
    }
}

impl DeviceLayers {
    /// Reads the counters of an engine.
    pub fn of(engine: &Engine) -> Vec<Self> {
        let one = |piece: PieceReport| Self {
            device: piece.device,
            first_layer: piece.first,
            last_layer: piece.last,
            pieces: piece.pieces,
            device_ms: millis(piece.time),
        };
        engine.device_pieces().into_iter().map(one).collect()
    }
}

/// Reads the counters of an engine's copies of experts. `None` if devices hold none.
pub fn hot_experts(engine: &Engine) -> Option<HotExpertsReport> {
    Some(HotExpertsReport::of(&engine.hot_experts()?, engine.contested_batches()))
}

/// Reads the counters of an engine's store. `None` in stock runs.
pub fn store_report(engine: &Engine) -> Option<StoreReport> {
    let stats = engine.store_stats()?;
    Some(StoreReport {
        adapts: engine.adapts(),
        budget_now: engine.budget_now().unwrap_or_default().bytes(),
        ..StoreReport::new(&stats, engine.plan().tuned_gbps)
    })
}

impl TimingReport {
    fn new(engine: &Engine, timings: &Timings) -> Self {
        Self {
            load_ms: engine.load_ms(),
            prompt_tps: timings.prompt_tps,
            decode_tps: timings.decode_tps,
            ttft_ms: timings.ttft_ms,
            prompt_ms: timings.prompt_ms,
            decode_ms: timings.decode_ms,
            decode_passes: timings.decode_passes,
            drafted: timings.drafted,
            accepted: timings.accepted,
        }
    }
}

impl RunReport {
    /// The marks of lossy settings, as plans print them.
    pub fn lossy_marks(&self) -> Vec<String> {
        let marks = self.lossy.as_ref().and_then(|lossy| lossy["marks"].as_array());
        let text = |mark: &serde_json::Value| Some(format!("lossy: {}", mark["text"].as_str()?));
        marks.into_iter().flatten().filter_map(text).collect()
    }

    /// Reports a generation that has just ended.
    pub fn new(engine: &Engine, generation: &Answer) -> Self {
        let plan = engine.plan();
        let stop = serde_json::to_value(generation.stop).ok();
        Self {
            text: String::from_utf8_lossy(&generation.text).into_owned(),
            tokens: generation.tokens.clone(),
            prompt_tokens: generation.prompt_tokens,
            epochs: generation.epochs,
            stop: stop.as_ref().and_then(|s| s.as_str()).unwrap_or_default().to_owned(),
            mode: plan.mode.clone(),
            plan: serde_json::to_value(plan).expect("a plan is plain data"),
            timings: TimingReport::new(engine, &generation.timings),
            store: store_report(engine),
            decode: generation.decode.map(|stats| StoreReport::new(&stats, plan.tuned_gbps)),
            foretold: ForetoldReport::of(engine),
            hot_experts: hot_experts(engine),
            lossy: generation.lossy.as_ref().map(|lossy| serde_json::json!(lossy)),
            device_layers: DeviceLayers::of(engine),
            layers: engine.layer_stats().iter().map(LayerReport::from).collect(),
            copies: CopyReport::all(&engine.copies()),
            preset: None,
            moved_bytes: engine.weights().map_or(0, |weights| weights.moved_from_maps().0.bytes()),
            peak_rss_bytes: peak_rss().bytes(),
        }
    }
}
