//! The options of `terrace llama`: those that the plug-in has settings for.

use clap::{ArgAction, Args};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use terrace_cli::args::{Output, output};
use terrace_cli::written;
use terrace_engine::options::{HotOptions, Lookahead};
use terrace_model::SizeChoice;
use terrace_model::cli::on_off;
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
    /// Weights that may stream from disk: experts, ffn, all, none, or auto: no more than the budget requires
    #[arg(
        long,
        value_name = "WHAT",
        env = "TERRACE_STREAM",
        default_value = "auto",
        hide_possible_values = true
    )]
    pub stream: Manage,
    /// I/O engine that reads weights
    #[arg(long, value_name = "uring|pread|auto", env = "TERRACE_IO", default_value = "auto")]
    pub io: IoChoice,
    /// Read past the page cache
    #[arg(long, value_name = "on|off|auto", env = "TERRACE_DIRECT", default_value = "auto")]
    pub direct: DirectChoice,
    // The store lists its policies by name.
    #[arg(long, value_name = "POLICY", env = "TERRACE_CACHE_POLICY", default_value_t,
        help = format!("Which weights are evicted: {} (FILE is a list from `experts show --list`)", PolicyKind::CHOICES))]
    pub cache_policy: PolicyKind,
    /// Room for experts read ahead on a guess of what the next layer needs: a size, off or auto (8MiB)
    #[arg(long, value_name = "SIZE|off|auto", env = "TERRACE_LOOKAHEAD", default_value = "auto")]
    pub lookahead: Lookahead,
    /// Record which experts the model uses: the next run reads the hottest experts ahead [default: on]
    #[arg(long, value_name = "on|off", env = "TERRACE_WARM_START", value_parser = on_off(), action = ArgAction::Set)]
    pub warm_start: Option<bool>,
    /// Copies of experts on the program's accelerators. What is free there is the program's, so `max` is
    /// refused, and auto means none.
    #[command(flatten)]
    pub hot: HotOptions,
    /// Start with the experts that FILE, a learn file, counts as used most
    #[arg(long, value_name = "FILE", env = "TERRACE_LEARNED")]
    pub learned: Option<PathBuf>,
    /// Record which experts are used into this file, for `terrace trace`: when a model is freed. The
    /// second model's is FILE.2
    #[arg(long, value_name = "FILE", env = "TERRACE_TRACE", value_parser = output(&terrace_backend::TRACE_FILE))]
    pub trace: Option<Output>,
    /// Record reads and waits into this file, for Perfetto: when a model is freed. The second
    /// model's is FILE.2
    #[arg(long, value_name = "FILE", env = "TERRACE_TIMELINE", value_parser = output(&terrace_store::timeline::FILE))]
    pub timeline: Option<Output>,
    /// Write what was read into this file (JSON), when a model is freed and at the end
    #[arg(long, value_name = "FILE", env = "TERRACE_STATS", value_parser = output(&written::PROCESS_STATS))]
    pub stats: Option<Output>,
    /// The socket for `terrace attach`: auto (in XDG_RUNTIME_DIR), off, or a path
    #[arg(long, value_name = "auto|off|PATH", env = "TERRACE_CONTROL", default_value = "auto")]
    pub control: String,
    /// Do not print the plan
    #[arg(short, long)]
    pub quiet: bool,
}

impl LlamaArgs {
    /// The variables by which the plug-in gets these settings, with `budget` in place of an automatic
    /// one. What else it has, it takes from the environment and from the file that was read here:
    /// `config`, if the user named one.
    pub fn variables(&self, budget: Budget, config: Option<&Path>) -> Vec<(&'static str, OsString)> {
        let Self {
            host: _,
            arguments: _,
            plugin: _,
            ram_budget: _,
            stream,
            io,
            direct,
            cache_policy,
            lookahead,
            warm_start,
            hot,
            learned,
            trace,
            timeline,
            stats,
            control,
            quiet: _,
        } = self;
        let HotOptions { hot_cache, hot_update, hot_split, hot_weighting, hot_layer_curve, hot_lanes } = hot;
        let budget = match budget {
            Budget::Auto => "auto".to_owned(),
            // In bytes: sizes are rounded where they are shown.
            Budget::Bytes(size) => size.bytes().to_string(),
        };
        // In bytes, as above.
        let copies = hot_cache.iter().map(|PerDevice { device, value }| {
            let size = match value {
                HotSize::Bytes(size) => size.bytes().to_string(),
                HotSize::MaxBut(free) => format!("max-{}", free.bytes()),
                other => other.to_string(),
            };
            device.as_ref().map_or_else(|| size.clone(), |device| format!("{device}={size}"))
        });
        let said = [
            ("TERRACE_RAM_BUDGET", budget),
            ("TERRACE_STREAM", stream.to_string()),
            ("TERRACE_IO", io.to_string()),
            ("TERRACE_DIRECT", direct.to_string()),
            ("TERRACE_CACHE_POLICY", cache_policy.to_string()),
            ("TERRACE_LOOKAHEAD", exact(*lookahead)),
            ("TERRACE_WARM_START", (if *warm_start == Some(false) { "off" } else { "on" }).to_owned()),
            ("TERRACE_HOT_CACHE", copies.collect::<Vec<_>>().join(",")),
            ("TERRACE_HOT_UPDATE", exact(*hot_update)),
            ("TERRACE_HOT_SPLIT", hot_split.to_string()),
            ("TERRACE_HOT_WEIGHTING", hot_weighting.to_string()),
            ("TERRACE_HOT_LAYER_CURVE", hot_layer_curve.to_string()),
            ("TERRACE_HOT_LANES", hot_lanes.to_string()),
            ("TERRACE_CONTROL", control.clone()),
        ];
        let files = [
            ("TERRACE_LEARNED", learned.as_deref()),
            ("TERRACE_TRACE", trace.as_deref()),
            ("TERRACE_TIMELINE", timeline.as_deref()),
            ("TERRACE_STATS", stats.as_deref()),
            ("TERRACE_CONFIG", config),
        ];
        let files = files.into_iter().filter_map(|(name, file)| Some((name, file?.into())));
        said.into_iter().map(|(name, value)| (name, value.into())).chain(files).collect()
    }
}

/// A size in bytes: sizes are rounded where they are shown.
fn exact(size: SizeChoice) -> String {
    match size {
        SizeChoice::Bytes(size) => size.bytes().to_string(),
        other => other.to_string(),
    }
}
