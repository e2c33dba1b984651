//! Whose order of sums a model is computed in.

/// Whose kernels compute a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum KernelChoice {
    /// Those with the bits of llama.cpp's own.
    #[default]
    Exact,
    /// Also those for attention and quantised weights that round otherwise and are faster.
    Fast,
}

/// Whose kernels compute a model.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
#[command(next_help_heading = "Devices")]
pub struct KernelOptions {
    /// Kernels on the processor
    #[arg(long, value_name = "exact|fast", env = "TERRACE_KERNELS", value_enum, default_value_t)]
    pub kernels: KernelChoice,
}
