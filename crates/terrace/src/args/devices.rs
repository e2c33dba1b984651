//! What lives on accelerators.

use clap::Args;
use terrace_engine::options::DeviceOptions;
use terrace_ggml::llama::SplitMode;
use terrace_plan::Budget;

/// What lives on accelerators.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Memory and I/O")]
pub struct DeviceArgs {
    /// Number of layers on accelerators, counted from the last; the output head counts as one
    /// [default: as many as pay off]
    #[arg(long, value_name = "N", env = "TERRACE_N_GPU_LAYERS")]
    pub n_gpu_layers: Option<u32>,
    /// How accelerators share their layers: `layer` puts each layer on one accelerator, `tensor`
    /// puts a slice of every matrix on each
    #[arg(long, value_name = "layer|tensor", env = "TERRACE_SPLIT_MODE", default_value = "layer")]
    pub split_mode: SplitMode,
    /// Limit for the weights and context on each accelerator: a size like 8GiB, or auto
    #[arg(long, value_name = "SIZE|auto", env = "TERRACE_VRAM_BUDGET", default_value = "auto")]
    pub vram_budget: Budget,
    /// Use the accelerators of a ggml RPC server; may be repeated
    #[arg(long, value_name = "HOST:PORT", env = "TERRACE_RPC", value_delimiter = ',')]
    pub rpc: Vec<String>,
}

impl DeviceArgs {
    /// Converts these to the engine's options.
    pub fn options(&self) -> DeviceOptions {
        let Self { n_gpu_layers, split_mode, vram_budget, rpc } = self;
        DeviceOptions {
            rpc: rpc.clone(),
            layers: *n_gpu_layers,
            split_mode: *split_mode,
            vram_budget: *vram_budget,
        }
    }
}
