//! The options of `terrace llama`: those that the plug-in has settings for.

use crate::args::HotLanes;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use terrace_backend::HotUpdate;
use terrace_plan::{Budget, HotSize, Manage, PerDevice};
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
    /// Hold copies of the hottest experts in this much memory of the program's accelerators, and compute
    /// those experts there; off and auto: none. DEVICE=SIZE is for one accelerator; may be repeated
    #[arg(
        long,
        value_name = "[DEVICE=]SIZE|off|auto",
        env = "TERRACE_HOT_CACHE",
        default_value = "auto",
        value_delimiter = ','
    )]
    pub hot_cache: Vec<PerDevice<HotSize>>,
    /// How much may be copied per token, on average, to replace copies by experts that are now used
    /// more: a size, off, or auto: what the accelerator takes in 2 ms
    #[arg(long, value_name = "SIZE|off|auto", env = "TERRACE_HOT_UPDATE", default_value = "auto")]
    pub hot_update: HotUpdate,
    /// When accelerators compute experts that they have copies of: auto: where a round trip pays;
    /// always
    #[arg(long, value_name = "auto|always", env = "TERRACE_HOT_LANES", default_value = "auto")]
    pub hot_lanes: HotLanes,
    /// Record which experts are used into this file, for `terrace trace`: when a model is freed. The
    /// second model's is FILE.2
    #[arg(long, value_name = "FILE", env = "TERRACE_TRACE")]
    pub trace: Option<PathBuf>,
    /// Record reads and waits into this file, for Perfetto: when a model is freed. The second
    /// model's is FILE.2
    #[arg(long, value_name = "FILE", env = "TERRACE_TIMELINE")]
    pub timeline: Option<PathBuf>,
    /// Write what was read into this file (JSON), when a model is freed and at the end
    #[arg(long, value_name = "FILE", env = "TERRACE_STATS")]
    pub stats: Option<PathBuf>,
    /// The socket for `terrace attach`: auto (in XDG_RUNTIME_DIR), off, or a path
    #[arg(long, value_name = "auto|off|PATH", env = "TERRACE_CONTROL", default_value = "auto")]
    pub control: String,
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
            hot_cache,
            hot_update,
            hot_lanes,
            trace,
            timeline,
            stats,
            control,
            quiet: _,
        } = self;
        let budget = match budget {
            Budget::Auto => "auto".to_owned(),
            // In bytes: sizes are rounded where they are shown.
            Budget::Bytes(size) => size.bytes().to_string(),
        };
        // In bytes, as above.
        let copies = hot_cache.iter().map(|PerDevice { device, value }| {
            let size = match value {
                HotSize::Bytes(size) => size.bytes().to_string(),
                other => other.to_string(),
            };
            device.as_ref().map_or_else(|| size.clone(), |device| format!("{device}={size}"))
        });
        let update = match hot_update {
            HotUpdate::Bytes(size) => size.bytes().to_string(),
            other => other.to_string(),
        };
        let said = [
            ("TERRACE_RAM_BUDGET", budget),
            ("TERRACE_STREAM", stream.to_string()),
            ("TERRACE_IO", io.to_string()),
            ("TERRACE_DIRECT", direct.to_string()),
            ("TERRACE_CACHE_POLICY", cache_policy.to_string()),
            ("TERRACE_HOT_CACHE", copies.collect::<Vec<_>>().join(",")),
            ("TERRACE_HOT_UPDATE", update),
            ("TERRACE_HOT_LANES", hot_lanes.to_string()),
            ("TERRACE_CONTROL", control.clone()),
            // It was read here, and the variables have what it says.
            ("TERRACE_CONFIG", "/dev/null".to_owned()),
        ];
        let files = [("TERRACE_TRACE", trace), ("TERRACE_TIMELINE", timeline), ("TERRACE_STATS", stats)];
        let files = files.into_iter().filter_map(|(name, file)| Some((name, file.clone()?.into())));
        said.into_iter().map(|(name, value)| (name, value.into())).chain(files).collect()
    }
}
