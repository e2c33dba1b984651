//! The options that commands share, a file for each group. A field's doc comment is the option's help; `env` says that it may
//! also stand in the environment and in the configuration file ([`crate::config`]).

mod cache;
mod compute;
mod context;
mod devices;
mod estimates;
mod following;
mod hot_cache;
mod io;
mod memory;
mod presets;
mod sampling;
mod testing;
mod words;

pub use cache::CacheArgs;
pub use compute::ComputeArgs;
pub use context::ContextArgs;
pub use devices::DeviceArgs;
pub use estimates::EstimateArgs;
pub use following::FollowingArgs;
pub use hot_cache::HotCacheArgs;
pub use io::IoArgs;
pub use memory::MemoryArgs;
pub use presets::{Applied, PresetArgs, PresetUse};
pub use sampling::SamplingArgs;
pub use testing::TestingArgs;
pub use words::Words;

use crate::error::CliError;
use crate::user_dirs::user_dirs;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use terrace_engine::Options;
use terrace_engine::options::{RecordOptions, ReloadOptions};

/// MODEL, as all commands take it.
pub const MODEL_HELP: &str = "A .gguf file (of a split model: its first), or hf:owner/repo[:file]";

/// What lives where: what `terrace plan` and every command that loads a model are asked in the same words.
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
}

/// All that decides how a model is loaded and computed.
#[derive(Debug, Clone, Args)]
pub struct EngineArgs {
    /// What lives where.
    #[command(flatten)]
    pub placement: PlacementArgs,
    /// What placement follows.
    #[command(flatten)]
    pub following: FollowingArgs,
    /// Reading.
    #[command(flatten)]
    pub io: IoArgs,
    /// Slots.
    #[command(flatten)]
    pub cache: CacheArgs,
    /// Computing.
    #[command(flatten)]
    pub compute: ComputeArgs,
    /// Presets.
    #[command(flatten)]
    pub presets: PresetArgs,
    /// The same in words.
    #[arg(skip)]
    pub words: Words,
}

impl EngineArgs {
    /// As the engine takes them: one sequence, nothing recorded, nothing replaced. A command that wants it otherwise says so.
    /// Every struct of options is taken apart and put together whole, so that a forgotten option does not compile.
    ///
    /// # Errors
    /// Options that exclude each other; a trace that is none.
    pub fn options(&self, model: PathBuf, testing: &TestingArgs) -> Result<Options, CliError> {
        // Presets have been made options before these were parsed.
        let Self { placement, following, io, cache, compute, presets: _, words: _ } = self;
        let PlacementArgs { memory, devices, hot, context, estimates } = placement;
        let (testing, mode, prompt) = testing.options(compute.repack);
        Ok(Options {
            model,
            mode,
            placement: memory.options(following)?,
            devices: devices.options(),
            hot: hot.options(),
            context: context.options(),
            io: io.options(),
            cache: cache.options(),
            compute: compute.options(),
            record: RecordOptions { trace: None, timeline: None },
            reload: ReloadOptions { allowed: false, contexts: Default::default() },
            estimates: estimates.options(prompt)?,
            user: user_dirs(),
            testing,
        })
    }
}

/// A switch that takes its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnOff {
    /// Yes.
    On,
    /// No.
    Off,
}

impl OnOff {
    /// As clap reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}
