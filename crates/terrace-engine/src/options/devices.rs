//! Layers on devices.

use terrace_ggml::llama::SplitMode;
use terrace_plan::Budget;

/// Layers on devices.
#[derive(Clone, Debug)]
pub struct DeviceOptions {
    /// RPC servers (`HOST:PORT`) whose devices are used like local ones.
    pub rpc: Vec<String>,
    /// Number of layers on devices, from the end of the model, counting the output head as one;
    /// `None` means as many as are worthwhile.
    pub layers: Option<u32>,
    /// How devices share the layers that they hold.
    pub split_mode: SplitMode,
    /// Memory of each device that may be used.
    pub vram_budget: Budget,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self { rpc: Vec::new(), layers: None, split_mode: SplitMode::default(), vram_budget: Budget::Auto }
    }
}
