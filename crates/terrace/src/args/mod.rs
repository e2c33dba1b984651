//! The options that commands share, one file per group. A field's doc comment is the option's help;
//! an option with `env` can also be set in the environment and in the configuration file
//! ([`crate::config`]).

mod adapters;
mod cache;
mod chat_template;
mod compute;
mod constraint;
mod context;
mod devices;
mod drafts;
mod embeddings;
mod estimates;
mod following;
mod hot_cache;
mod io;
mod learn;
mod memory;
mod output;
mod paths;
mod presets;
mod prompt_cache;
mod replicas;
mod samplers;
mod sampling;
mod testing;
mod thinking;
mod vision;
mod words;

pub use adapters::{AdapterArgs, adapters_in, scaled};
pub use cache::CacheArgs;
pub use chat_template::ChatTemplateArgs;
pub use compute::ComputeArgs;
pub use constraint::ConstraintArgs;
pub use context::ContextArgs;
pub use devices::DeviceArgs;
pub use drafts::DraftArgs;
pub use embeddings::EmbeddingArgs;
pub use estimates::EstimateArgs;
pub use following::FollowingArgs;
pub use hot_cache::HotCacheArgs;
pub use io::IoArgs;
pub use learn::LearnArgs;
pub use memory::MemoryArgs;
pub use output::{Output, output, output_or_folder, output_or_pipe};
pub use paths::PathList;
pub use presets::{Applied, PresetArgs, PresetUse};
pub use prompt_cache::{KeptSize, PromptCacheArgs, PromptFileArgs};
pub use replicas::ReplicaArgs;
pub use samplers::SamplerArgs;
pub use sampling::SamplingArgs;
pub use testing::TestingArgs;
pub use thinking::ThinkingArgs;
pub use vision::VisionArgs;
pub use words::Words;

use crate::error::CliError;
use crate::user_dirs::user_dirs;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use terrace_engine::Options;
use terrace_engine::options::{
    DraftOptions, EmbeddingOptions, IoOptions, PromptCacheOptions, ReloadOptions, VisionOptions,
};

/// Help of MODEL, the same for all commands.
pub const MODEL_HELP: &str = "A .gguf file (for a split model, its first shard), or hf:owner/repo[:file]";

/// What lives where: the options that `terrace plan` shares with every command that loads a model.
#[derive(Debug, Clone, Args)]
pub struct PlacementArgs {
    /// RAM.
    #[command(flatten)]
    pub memory: MemoryArgs,
    /// Accelerators.
    #[command(flatten)]
    pub devices: DeviceArgs,
    /// Experts on accelerators.
    #[command(flatten)]
    pub hot: HotCacheArgs,
    /// Tokens.
    #[command(flatten)]
    pub context: ContextArgs,
    /// Expectations.
    #[command(flatten)]
    pub estimates: EstimateArgs,
    /// Other disks.
    #[command(flatten)]
    pub replicas: ReplicaArgs,
}

/// Everything that decides how a model is loaded and computed.
#[derive(Debug, Clone, Args)]
pub struct EngineArgs {
    /// What lives where.
    #[command(flatten)]
    pub placement: PlacementArgs,
    /// What the placement follows.
    #[command(flatten)]
    pub following: FollowingArgs,
    /// Reading.
    #[command(flatten)]
    pub io: IoArgs,
    /// Slots.
    #[command(flatten)]
    pub cache: CacheArgs,
    /// Learning.
    #[command(flatten)]
    pub learn: LearnArgs,
    /// Computing.
    #[command(flatten)]
    pub compute: ComputeArgs,
    /// Presets.
    #[command(flatten)]
    pub presets: PresetArgs,
    /// The same options as words of a command line.
    #[arg(skip)]
    pub words: Words,
}

impl EngineArgs {
    /// Converts these to the engine's options: one sequence, nothing recorded, nothing replaced.
    /// Commands adjust what they need otherwise. Every struct of options is destructured and built
    /// exhaustively, so that a forgotten option does not compile.
    ///
    /// # Errors
    /// The options contradict each other, or the file of a trace cannot be read as one.
    pub fn options(&self, model: PathBuf, testing: &TestingArgs) -> Result<Options, CliError> {
        // Presets became default values before these options were parsed.
        let Self { placement, following, io, cache, learn, compute, presets: _, words: _ } = self;
        let PlacementArgs { memory, devices, hot, context, estimates, replicas } = placement;
        // The stock side of a comparison reads its file itself.
        let verify = io.verify && !testing.stock;
        let replicas = if testing.stock { Vec::new() } else { PathList::all(&replicas.replica) };
        let (testing, mode) = testing.options(compute.repack);
        let (hot, record) = learn.options(hot)?;
        Ok(Options {
            model,
            chat_template: None,
            mode,
            adapters: Vec::new(),
            placement: memory.options(following)?,
            devices: devices.options(),
            hot,
            context: context.options(),
            embeddings: EmbeddingOptions::default(),
            vision: VisionOptions::default(),
            io: IoOptions { verify, replicas, ..io.options() },
            cache: cache.options(),
            compute: compute.options(),
            drafts: DraftOptions::default(),
            record,
            prompt_cache: PromptCacheOptions::default(),
            reload: ReloadOptions { allowed: false, contexts: Default::default() },
            estimates: estimates.options(&cache.cache_policy)?,
            user: user_dirs(),
            testing,
        })
    }
}

/// Reads the name of a directory.
///
/// # Errors
/// There is no such directory.
pub fn directory(text: &str) -> Result<PathBuf, String> {
    if Path::new(text).is_dir() { Ok(text.into()) } else { Err("must be a directory that exists".into()) }
}

/// The value of a switch that is given as `on` or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnOff {
    /// Yes.
    On,
    /// No.
    Off,
}

impl OnOff {
    /// The name as clap reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}
