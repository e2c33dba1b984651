//! Layers and caches on accelerators.

use super::budget::Budget;
use super::by_device::{ByDevice, PerDevice};
use std::time::Duration;
use terrace_model::{ByteSize, SplitMode};

/// The value of `--device` that names none.
const NO_DEVICE: &str = "none";

/// Use of accelerators.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Devices")]
pub struct DeviceOptions {
    /// The accelerators that may be used, by ggml's names, separated by commas; none: no accelerator
    /// [default: all]
    #[arg(long, value_name = "LIST", env = "TERRACE_DEVICE", value_delimiter = ',')]
    pub device: Vec<String>,
    /// Number of layers on accelerators, counted from the last; the output head counts as one
    /// [default: as many as make the model faster]
    #[arg(long, value_name = "N", env = "TERRACE_N_GPU_LAYERS")]
    pub n_gpu_layers: Option<u32>,
    /// Keep the experts of all layers off accelerators, except as copies (--hot-cache): they stay in
    /// RAM, or stream if they do not fit
    #[arg(long, env = "TERRACE_CPU_MOE")]
    pub cpu_moe: bool,
    /// Keep the experts of the first N layers off accelerators, as --cpu-moe does with all
    #[arg(long, value_name = "N", env = "TERRACE_N_CPU_MOE")]
    pub n_cpu_moe: Option<u32>,
    /// Division of layers among accelerators: `layer` puts each layer on one accelerator, `tensor` puts a
    /// slice of every matrix on each
    #[arg(long, value_name = "layer|tensor", env = "TERRACE_SPLIT_MODE", default_value_t)]
    pub split_mode: SplitMode,
    /// Limit for the weights and context on each accelerator: a size like 8GiB, or auto.
    /// DEVICE=SIZE is for one accelerator; may be repeated
    #[arg(long, value_name = "[DEVICE=]SIZE|auto", env = "TERRACE_VRAM_BUDGET")]
    #[arg(default_value = "auto", value_delimiter = ',')]
    pub vram_budget: Vec<PerDevice<Budget>>,
    /// Memory of each accelerator that stays free where the limit is auto. DEVICE=SIZE is for one
    /// accelerator; may be repeated [default: an eighth of what is free, at most 5 % or 512 MiB]
    #[arg(long, value_name = "[DEVICE=]SIZE", env = "TERRACE_VRAM_RESERVE", value_delimiter = ',')]
    pub vram_reserve: Vec<PerDevice<ByteSize>>,
    /// Compute large batches, such as long prompts, on accelerators even where weights are in RAM, from
    /// which they are copied for each batch
    #[arg(long, value_name = "on|off", env = "TERRACE_OP_OFFLOAD", default_value = "on", value_parser = terrace_model::cli::on_off(), action = clap::ArgAction::Set)]
    pub op_offload: bool,
    /// Use the accelerators of a ggml RPC server; may be repeated
    #[arg(long, value_name = "HOST:PORT", env = "TERRACE_RPC", value_delimiter = ',')]
    pub rpc: Vec<String>,
    /// Give up an RPC server that is silent for this many seconds while a response is awaited
    /// [default: 15 for `terrace worker`, which says that it is alive; 600 for others, which say
    /// nothing while they compute]
    #[arg(long, value_name = "SECONDS", env = "TERRACE_RPC_TIMEOUT", value_parser = seconds)]
    pub rpc_timeout: Option<Duration>,
    /// Measure the link to each RPC server and the speed of its devices for plans, which takes half a
    /// second each and is kept for ten minutes; off: assume a typical GPU, or use the rates that
    /// `terrace machine --rpc` has measured
    #[arg(long, value_name = "on|off", env = "TERRACE_RPC_PROBE", default_value = "on", value_parser = terrace_model::cli::on_off(), action = clap::ArgAction::Set)]
    pub rpc_probe: bool,
}

impl Default for DeviceOptions {
    /// Uses all devices. Unlike the command line, it measures no links.
    fn default() -> Self {
        Self { rpc_probe: false, ..terrace_model::cli::unset() }
    }
}

impl DeviceOptions {
    /// Returns the names of the devices that may be used; `None` means all.
    pub fn usable(&self) -> Option<&[String]> {
        match &self.device[..] {
            [] => None,
            [none] if none == NO_DEVICE => Some(&[]),
            names => Some(names),
        }
    }

    /// Returns the options of a run without devices.
    pub fn none() -> Self {
        Self { device: vec![NO_DEVICE.into()], ..Self::default() }
    }

    /// Returns the limit for weights and context on a device.
    pub fn budget_on(&self, device: &str) -> Budget {
        self.vram_budget.on(device).unwrap_or_default()
    }

    /// Returns whether each device holds a slice of every matrix, instead of whole layers.
    pub fn split(&self) -> bool {
        self.split_mode == SplitMode::Tensor
    }

    /// Returns the number of layers, counted from the first, whose experts are on no device except as
    /// copies.
    pub fn host_experts(&self) -> u32 {
        if self.cpu_moe { u32::MAX } else { self.n_cpu_moe.unwrap_or(0) }
    }
}

fn seconds(text: &str) -> Result<Duration, &'static str> {
    match text.parse() {
        Ok(seconds) if (0.1..=1e6).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("must be a number from 0.1 to 1000000"),
    }
}
