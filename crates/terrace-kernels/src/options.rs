//! Whose order of sums a model is computed in.

/// Whose kernels compute a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum KernelChoice {
    /// Kernels with ggml's bits.
    #[default]
    Exact,
    /// Also kernels that add in an order of their own, where they are faster.
    Fast,
}

/// Whose kernels compute a model.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Devices"))]
pub struct KernelOptions {
    /// Kernels on the processor: exact: those with the bits of llama.cpp's own; fast: also those for attention and
    /// prompts that round otherwise and are faster in long contexts
    #[cfg_attr(
        feature = "cli",
        arg(
            long,
            value_name = "exact|fast",
            env = "TERRACE_KERNELS",
            value_enum,
            default_value_t,
            hide_possible_values = true
        )
    )]
    pub kernels: KernelChoice,
}
