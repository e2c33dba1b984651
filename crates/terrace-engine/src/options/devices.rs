//! Layers on devices.

use std::time::Duration;
use terrace_ggml::llama::SplitMode;
use terrace_model::ByteSize;
use terrace_plan::{Budget, ByDevice};

/// Layers on devices.
#[derive(Clone, Debug)]
pub struct DeviceOptions {
    /// Names of the devices that may be used; `None` means all.
    pub only: Option<Vec<String>>,
    /// RPC servers (`HOST:PORT`) whose devices are used like local ones.
    pub rpc: Vec<String>,
    /// Silence after which an RPC server is given up while an answer is awaited; `None` means the
    /// default of [`give_up_after`](terrace_ggml::devices::silence::give_up_after).
    pub rpc_timeout: Option<Duration>,
    /// Whether the links to RPC servers, and their devices, are measured when a plan needs that.
    pub rpc_probe: bool,
    /// Number of layers on devices, from the end of the model, counting the output head as one;
    /// `None` means as many as are worthwhile.
    pub layers: Option<u32>,
    /// Number of layers, counted from the first, whose experts are on no device except as copies.
    pub host_experts: u32,
    /// How devices share the layers that they hold.
    pub split_mode: SplitMode,
    /// Memory of each device that may be used.
    pub vram_budget: ByDevice<Budget>,
    /// Memory of each device that stays free with an automatic budget; `None` means an eighth of
    /// what is free, or less.
    pub vram_reserve: ByDevice<Option<ByteSize>>,
    /// Whether devices compute large batches with weights that are in main memory.
    pub op_offload: bool,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            only: None,
            rpc: Vec::new(),
            rpc_timeout: None,
            rpc_probe: false,
            layers: None,
            host_experts: 0,
            split_mode: SplitMode::default(),
            vram_budget: ByDevice::all(Budget::Auto),
            vram_reserve: ByDevice::all(None),
            op_offload: true,
        }
    }
}
