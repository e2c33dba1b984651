//! What lives on accelerators.

use super::OnOff;
use clap::Args;
use std::time::Duration;
use terrace_engine::options::DeviceOptions;
use terrace_ggml::llama::SplitMode;
use terrace_model::ByteSize;
use terrace_plan::{Budget, ByDevice, PerDevice};

/// What lives on accelerators.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Memory and I/O")]
pub struct DeviceArgs {
    /// The accelerators that may be used, by ggml's names, separated by commas; none: no accelerator
    /// [default: all]
    #[arg(long, value_name = "LIST", env = "TERRACE_DEVICE", value_delimiter = ',')]
    pub device: Vec<String>,
    /// Number of layers on accelerators, counted from the last; the output head counts as one
    /// [default: as many as pay off]
    #[arg(long, value_name = "N", env = "TERRACE_N_GPU_LAYERS")]
    pub n_gpu_layers: Option<u32>,
    /// Keep the experts of all layers off accelerators, except as copies (--hot-cache): they stay in
    /// RAM, or stream if they do not fit
    #[arg(long, env = "TERRACE_CPU_MOE")]
    pub cpu_moe: bool,
    /// The same for the experts of the first N layers
    #[arg(long, value_name = "N", env = "TERRACE_N_CPU_MOE")]
    pub n_cpu_moe: Option<u32>,
    /// How accelerators share their layers: `layer` puts each layer on one accelerator, `tensor`
    /// puts a slice of every matrix on each
    #[arg(long, value_name = "layer|tensor", env = "TERRACE_SPLIT_MODE", default_value = "layer")]
    pub split_mode: SplitMode,
    /// Limit for the weights and context on each accelerator: a size like 8GiB, or auto.
    /// DEVICE=SIZE is for one accelerator; may be repeated
    #[arg(
        long,
        value_name = "[DEVICE=]SIZE|auto",
        env = "TERRACE_VRAM_BUDGET",
        default_value = "auto",
        value_delimiter = ','
    )]
    pub vram_budget: Vec<PerDevice<Budget>>,
    /// Memory of each accelerator that stays free where the limit is auto. DEVICE=SIZE is for one
    /// accelerator; may be repeated [default: an eighth of what is free, at most 5 % or 512 MiB]
    #[arg(long, value_name = "[DEVICE=]SIZE", env = "TERRACE_VRAM_RESERVE", value_delimiter = ',')]
    pub vram_reserve: Vec<PerDevice<ByteSize>>,
    /// Whether accelerators compute large batches, as of a long prompt, with weights that are in
    /// RAM: these are copied to them for each batch
    #[arg(long, value_name = "on|off", env = "TERRACE_OP_OFFLOAD", default_value = "on")]
    pub op_offload: OnOff,
    /// Use the accelerators of a ggml RPC server; may be repeated
    #[arg(long, value_name = "HOST:PORT", env = "TERRACE_RPC", value_delimiter = ',')]
    pub rpc: Vec<String>,
    /// Give up an RPC server that is silent for this many seconds while an answer is awaited
    /// [default: 15 for `terrace worker`, which says that it is alive; 600 for others, which say
    /// nothing while they compute]
    #[arg(long, value_name = "SECONDS", env = "TERRACE_RPC_TIMEOUT", value_parser = seconds)]
    pub rpc_timeout: Option<Duration>,
    /// Whether plans measure the link to each RPC server and the speed of its devices, which takes half a
    /// second for each, and is kept for ten minutes; off: typical rates of a GPU in this machine, or
    /// what `terrace machine --rpc` has measured
    #[arg(long, value_name = "on|off", env = "TERRACE_RPC_PROBE", default_value = "on")]
    pub rpc_probe: OnOff,
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=1e6).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("must be a number from 0.1 to 1000000".into()),
    }
}

impl DeviceArgs {
    /// Converts these to the engine's options.
    pub fn options(&self) -> DeviceOptions {
        let Self {
            device,
            n_gpu_layers,
            cpu_moe,
            n_cpu_moe,
            split_mode,
            vram_budget,
            vram_reserve,
            op_offload,
            rpc,
            rpc_timeout,
            rpc_probe,
        } = self;
        let only = match &device[..] {
            [] => None,
            [none] if none == "none" => Some(Vec::new()),
            names => Some(names.to_vec()),
        };
        let reserve = |given: &PerDevice<ByteSize>| PerDevice {
            device: given.device.clone(),
            value: Some(given.value),
        };
        let reserves: Vec<_> = vram_reserve.iter().map(reserve).collect();
        DeviceOptions {
            only,
            rpc: rpc.clone(),
            rpc_timeout: *rpc_timeout,
            rpc_probe: *rpc_probe == OnOff::On,
            layers: *n_gpu_layers,
            host_experts: if *cpu_moe { u32::MAX } else { n_cpu_moe.unwrap_or(0) },
            split_mode: *split_mode,
            vram_budget: ByDevice::of(vram_budget, Budget::Auto),
            vram_reserve: ByDevice::of(&reserves, None),
            op_offload: *op_offload == OnOff::On,
        }
    }
}
