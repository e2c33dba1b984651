//! Use of devices while a prompt is computed.

/// The ways in which devices take part in prefill, apart from computing the layers that they hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefillPaths {
    /// Fewest tokens of a graph for which weights in RAM are copied to a device, as ggml has it; `None` if they
    /// never are.
    pub offload: Option<u32>,
    /// True if experts without a copy are, those in slots too, of layers of which a device holds
    /// copies, beside what the CPU computes of them.
    pub streamed: bool,
    /// True if copies of a part of a layer's experts compute their pairs.
    pub copies: bool,
}

impl Default for PrefillPaths {
    fn default() -> Self {
        Self { offload: None, streamed: true, copies: true }
    }
}
