//! Copies of experts on accelerators.

use clap::{Args, ValueEnum};
use std::fmt;
use terrace_backend::{HotUpdate, Sending};
use terrace_engine::HotPlan;
use terrace_engine::options::HotOptions;
use terrace_plan::copies::{LAYER_CURVE, Weighting};
use terrace_plan::{ByDevice, HotSize, HotSplit, PerDevice};

/// Copies of experts on accelerators.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Memory and I/O")]
pub struct HotCacheArgs {
    /// Hold copies of the hottest experts on accelerators, and compute those experts there: at most
    /// this many bytes of each; max: all that is left beside the context and the dense weights of
    /// layers; off; or auto: as the plan says. DEVICE=SIZE is for one accelerator; may be repeated
    #[arg(
        long,
        value_name = "[DEVICE=]SIZE|max|off|auto",
        env = "TERRACE_HOT_CACHE",
        default_value = "auto",
        value_delimiter = ','
    )]
    pub hot_cache: Vec<PerDevice<HotSize>>,
    /// How much may be copied per token, on average, to replace copies by experts that are now used
    /// more: a size, off, or auto: what the accelerator takes in 2 ms
    #[arg(long, value_name = "SIZE|off|auto", env = "TERRACE_HOT_UPDATE", default_value = "auto")]
    pub hot_update: HotUpdate,
    /// How several accelerators share the copies: off: each holds those of some layers; even: each
    /// holds experts of every layer, the hottest in turns; warm: the same, with the hottest on the
    /// first; on: each holds a slice of every copy, and all compute every layer together, which
    /// rounds sums differently. Needs a size for --hot-cache
    #[arg(long, value_name = "off|even|warm|on", env = "TERRACE_HOT_SPLIT", default_value_t)]
    pub hot_split: HotSplit,
    /// How an accelerator's copies are divided among layers, once earlier runs have counted uses:
    /// even: the same share of each layer's experts; uses: the most used experts of all layers; or
    /// flat, pressure, smooth_pressure, time, balanced: see the guide
    #[arg(long, value_name = "MODE", env = "TERRACE_HOT_WEIGHTING", default_value_t)]
    pub hot_weighting: Weighting,
    /// How strongly times of layers count in --hot-weighting, from 0 to 1
    #[arg(long, value_name = "N", env = "TERRACE_HOT_LAYER_CURVE", default_value_t = LAYER_CURVE, value_parser = curve)]
    pub hot_layer_curve: f64,
    /// When accelerators compute experts that they have copies of: auto: where a round trip takes
    /// less than the CPU needs for all of a layer, as measured; always
    #[arg(long, value_name = "auto|always", env = "TERRACE_HOT_LANES", default_value = "auto")]
    pub hot_lanes: HotLanes,
}

/// When accelerators compute experts that they have copies of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HotLanes {
    /// Where it pays.
    Auto,
    /// In every layer with copies.
    Always,
}

impl fmt::Display for HotLanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Always => "always",
        })
    }
}

fn curve(text: &str) -> Result<f64, String> {
    let curve = text.parse().ok().filter(|curve| (0.0..=1.0).contains(curve));
    curve.ok_or_else(|| "expected a number from 0 to 1".into())
}

impl HotCacheArgs {
    /// Warns if `--hot-split` has no effect.
    pub fn warn(&self, plan: &HotPlan) {
        if self.hot_split == HotSplit::Layers {
            return;
        }
        let given = self.hot_cache.iter().any(|size| size.value.is_given());
        match (given, plan.inactive.as_ref().or(plan.whole.as_ref())) {
            (false, _) => tracing::warn!("--hot-split has no effect without a size for --hot-cache"),
            (true, Some(reason)) => tracing::warn!("--hot-split has no effect: {reason}"),
            (true, None) => {}
        }
    }

    /// Converts these to the engine's options.
    pub fn options(&self) -> HotOptions {
        let Self { hot_cache, hot_update, hot_split, hot_weighting, hot_layer_curve, hot_lanes } = self;
        HotOptions {
            cache: ByDevice::of(hot_cache, HotSize::Auto),
            update: *hot_update,
            split: *hot_split,
            weighting: *hot_weighting,
            layer_curve: *hot_layer_curve,
            always: *hot_lanes == HotLanes::Always,
            // Learn files are options of their own.
            learned: None,
            auto_learn: false,
            warm_up: None,
            sending: Sending::default(),
        }
    }
}
