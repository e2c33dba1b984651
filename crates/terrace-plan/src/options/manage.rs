//! Named sets of weights.

use serde::{Deserialize, Serialize};

/// Which weights stream from disk through slots. All others are resident or mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Manage {
    /// The weights of routed experts.
    Experts,
    /// Experts, shared experts and dense feed-forward matrices.
    Ffn,
    /// Every matrix of at least [`MATRIX_MIN`](crate::model::MATRIX_MIN).
    All,
    /// Nothing. The model must fit, and is read into the memory of the process.
    None,
    /// Nothing. The kernel's page cache serves all weights from mapped files. Old for `--mmap`.
    #[value(hide = true)]
    Mapped,
    /// As little as the budget allows.
    #[default]
    Auto,
}

terrace_model::by_name!(Manage);
