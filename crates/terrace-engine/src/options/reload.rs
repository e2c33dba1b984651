//! Tensors that change while the model is loaded.

/// The keys and values in the context after tensors are replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum OnReload {
    /// Computed again with the new weights where they are needed.
    #[default]
    Clear,
    /// As the old weights computed them.
    Keep,
}

/// Tensors that change while the model is loaded.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReloadOptions {
    /// True if the model's files may be written to while it is loaded. If so, nothing is computed
    /// from a mapping of them.
    pub allowed: bool,
    /// The context after tensors are replaced.
    pub contexts: OnReload,
}
