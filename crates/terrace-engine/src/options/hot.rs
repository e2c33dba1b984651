//! Copies of experts on devices.

use std::path::PathBuf;
use terrace_backend::{HotUpdate, Sending};
use terrace_plan::copies::{LAYER_CURVE, Weighting};
use terrace_plan::{ByDevice, HotSize, HotSplit};

/// Copies of the most used experts, of layers that stream or stay in RAM.
#[derive(Clone, Debug)]
pub struct HotOptions {
    /// Memory of each device for copies.
    pub cache: ByDevice<HotSize>,
    /// How many bytes may be exchanged between two tokens.
    pub update: HotUpdate,
    /// How several devices share the copies.
    pub split: HotSplit,
    /// How slots are divided among layers, once earlier runs have counted the uses of experts.
    pub weighting: Weighting,
    /// How strongly times of layers count in that, from 0 to 1.
    pub layer_curve: f64,
    /// Whether lanes compute their pairs even where the CPU would be done sooner with all pairs.
    pub always: bool,
    /// Learn file whose most used experts are copied first.
    pub learned: Option<PathBuf>,
    /// Whether that file may not exist yet, and is written after each answer.
    pub auto_learn: bool,
    /// Text to evaluate after the load, so that the experts it uses are copied before the first
    /// answer.
    pub warm_up: Option<String>,
    /// Whether experts without a copy are copied to devices for prompts, if devices compute large
    /// batches at all.
    pub sending: Sending,
}

impl Default for HotOptions {
    fn default() -> Self {
        Self {
            cache: ByDevice::all(HotSize::Auto),
            update: HotUpdate::default(),
            split: HotSplit::Layers,
            weighting: Weighting::default(),
            layer_curve: LAYER_CURVE,
            always: false,
            learned: None,
            auto_learn: false,
            warm_up: None,
            sending: Sending::default(),
        }
    }
}
