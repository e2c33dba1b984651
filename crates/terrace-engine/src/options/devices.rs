//! What lives on devices.

use terrace_ggml::llama::SplitMode;
use terrace_plan::Budget;

/// Layers on devices.
#[derive(Clone, Debug)]
pub struct DeviceOptions {
    /// Servers (`HOST:PORT`) whose devices are used like this machine's own.
    pub rpc: Vec<String>,
    /// Layers on devices, the last ones, the output head counted as one; `None` means as many as pay.
    pub layers: Option<u32>,
    /// How devices share the layers that they hold.
    pub split_mode: SplitMode,
    /// What each device may hold.
    pub vram_budget: Budget,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self { rpc: Vec::new(), layers: None, split_mode: SplitMode::default(), vram_budget: Budget::Auto }
    }
}
