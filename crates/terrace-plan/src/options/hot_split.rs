//! Division of copies of experts among several devices.

/// Division of copies of experts among several devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum HotSplit {
    /// Each holds the copies of some layers.
    #[default]
    #[value(name = "off")]
    Layers,
    /// Each holds experts of every layer, the hottest in turns.
    Even,
    /// The same, with the hottest on the first.
    Warm,
}

terrace_model::by_name!(HotSplit);

impl HotSplit {
    /// Returns whether each device holds whole experts of every layer.
    pub const fn divides_experts(self) -> bool {
        matches!(self, Self::Even | Self::Warm)
    }
}
