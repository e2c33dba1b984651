//! The options of `terrace list`, `terrace pull` and `terrace rm`.

use clap::Args;

/// `terrace list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Print a JSON array instead of the table
    #[arg(long)]
    pub json: bool,
}

/// `terrace pull`.
#[derive(Debug, Args)]
pub struct PullArgs {
    /// The model: hf:owner/repo, with a file or a type such as Q4_K_M after a colon
    #[arg(value_name = "MODEL")]
    pub model: String,
}

/// `terrace rm`.
#[derive(Debug, Args)]
pub struct RmArgs {
    /// The model, as `terrace list` names it
    #[arg(value_name = "MODEL")]
    pub model: String,
}
