//! Copies of experts on accelerators.

use super::by_device::{ByDevice, PerDevice};
use super::hot_size::HotSize;
use super::hot_split::HotSplit;
use crate::copies::{LAYER_CURVE, Weighting};
use terrace_model::SizeChoice;

/// Copies of experts on accelerators, of layers that stream or stay in RAM.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Advanced")]
pub struct HotOptions {
    /// Hold copies of the hottest experts on accelerators, and compute those experts there: at most
    /// this many bytes of each; max: all that is left beside the context and the dense weights of
    /// layers; max-SIZE: the same, with SIZE left free; off; or auto: as the plan says. DEVICE=SIZE is
    /// for one accelerator; may be repeated
    #[arg(long, value_name = "[DEVICE=]SIZE|max|off|auto", env = "TERRACE_HOT_CACHE")]
    #[arg(default_value = "auto", value_delimiter = ',')]
    pub hot_cache: Vec<PerDevice<HotSize>>,
    /// Average bytes copied per token to replace copies with experts that are now used more: a size, off, or
    /// auto: what the accelerator takes in 2 ms
    #[arg(long, value_name = "SIZE|off|auto", env = "TERRACE_HOT_UPDATE", default_value_t)]
    pub hot_update: SizeChoice,
    /// Division of copies among several accelerators. Needs a size for --hot-cache
    #[arg(long, value_name = "off|even|warm", env = "TERRACE_HOT_SPLIT", default_value_t)]
    pub hot_split: HotSplit,
    /// Division of an accelerator's copies among layers, once earlier runs have counted uses: even: the same
    /// share of each layer's experts; uses: the most used experts of all layers; or flat, pressure,
    /// smooth_pressure, time, balanced: see the guide
    #[arg(long, value_name = "MODE", env = "TERRACE_HOT_WEIGHTING", default_value_t)]
    pub hot_weighting: Weighting,
    /// Weight of layers' times in --hot-weighting, from 0 to 1
    #[arg(long, value_name = "N", env = "TERRACE_HOT_LAYER_CURVE", default_value_t = LAYER_CURVE, value_parser = terrace_model::cli::share)]
    pub hot_layer_curve: f64,
    /// Compute experts on accelerators that hold copies
    #[arg(long, value_name = "auto|always", env = "TERRACE_HOT_LANES", default_value_t)]
    pub hot_lanes: HotLanes,
}

terrace_model::default_is_unset!(HotOptions);
terrace_model::by_name!(HotLanes);

impl HotOptions {
    /// Returns the memory of a device for copies.
    pub fn size_on(&self, device: &str) -> HotSize {
        self.hot_cache.on(device).unwrap_or_default()
    }

    /// Returns the memory for copies of devices that are not named, and of each that is.
    pub fn sizes(&self) -> impl Iterator<Item = HotSize> {
        let named = self.hot_cache.iter().filter(|given| given.device.is_some());
        let others = self.hot_cache.others().unwrap_or_default();
        std::iter::once(others).chain(named.map(|given| given.value))
    }

    /// Returns whether the user gave a size for any device.
    pub fn is_given(&self) -> bool {
        self.sizes().any(HotSize::is_given)
    }
}

/// When accelerators compute experts that they have copies of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum HotLanes {
    /// Where a round trip takes less than the CPU needs for all of a layer, as measured.
    #[default]
    Auto,
    /// In every layer with copies.
    Always,
}
