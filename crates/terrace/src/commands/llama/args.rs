//! The options of `terrace llama`: those that the plug-in has settings for.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use terrace_plan::{Budget, Manage};
use terrace_store::{DirectChoice, IoChoice, PolicyKind};

/// `terrace llama`.
#[derive(Debug, Args)]
pub struct LlamaArgs {
    /// The program: a name in PATH, or a path
    #[arg(value_name = "HOST", default_value = "llama-server")]
    pub host: PathBuf,
    /// The program's own arguments
    #[arg(last = true, value_name = "ARGS")]
    pub arguments: Vec<OsString>,
    /// The plug-in [default: libggml-terrace.so beside this program]
    #[arg(long, value_name = "FILE", env = "TERRACE_PLUGIN")]
    pub plugin: Option<PathBuf>,
    /// RAM for the weights of all of the program's models: a size like 512MiB, or auto
    #[arg(long, value_name = "SIZE|auto", env = "TERRACE_RAM_BUDGET", default_value = "auto")]
    pub ram_budget: Budget,
    /// What may stream from disk: experts, ffn, all, none, or auto: no more than the budget requires
    #[arg(long, value_name = "WHAT", env = "TERRACE_STREAM", default_value = "auto")]
    pub stream: Manage,
    /// I/O engine that reads weights: uring, pread or auto
    #[arg(long, value_name = "uring|pread|auto", env = "TERRACE_IO", default_value = "auto")]
    pub io: IoChoice,
    /// Read past the page cache: on, off or auto
    #[arg(long, value_name = "on|off|auto", env = "TERRACE_DIRECT", default_value = "auto")]
    pub direct: DirectChoice,
    // The store lists its policies by name.
    #[arg(long, value_name = "POLICY", env = "TERRACE_CACHE_POLICY", default_value = "lru",
        help = format!("Which weights are evicted: {} (FILE is a list from `trace hot`)", PolicyKind::CHOICES))]
    pub cache_policy: PolicyKind,
    /// Do not print the plan
    #[arg(short, long)]
    pub quiet: bool,
}

impl LlamaArgs {
    /// The variables by which the plug-in gets these settings, with `budget` in place of an automatic
    /// one.
    pub fn variables(&self, budget: Budget) -> Vec<(&'static str, OsString)> {
        let Self {
            host: _,
            arguments: _,
            plugin: _,
            ram_budget: _,
            stream,
            io,
            direct,
            cache_policy,
            quiet: _,
        } = self;
        let budget = match budget {
            Budget::Auto => "auto".to_owned(),
            // In bytes: sizes are rounded where they are shown.
            Budget::Bytes(size) => size.bytes().to_string(),
        };
        let variables = [
            ("TERRACE_RAM_BUDGET", budget),
            ("TERRACE_STREAM", stream.to_string()),
            ("TERRACE_IO", io.to_string()),
            ("TERRACE_DIRECT", direct.to_string()),
            ("TERRACE_CACHE_POLICY", cache_policy.to_string()),
            // It was read here, and the variables have what it says.
            ("TERRACE_CONFIG", "/dev/null".to_owned()),
        ];
        variables.map(|(name, value)| (name, value.into())).into()
    }
}
