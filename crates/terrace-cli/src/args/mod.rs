//! The options that commands share. Those of the engine are groups of [`terrace_engine::options`]; here are
//! those that only the program has. A field's documentation is the option's help; an option with `env` can
//! also be set in the environment and in the configuration file.

mod chat_template;
mod constraint;
mod contradictions;
mod drafts;
mod presets;
mod prompt_file;
mod run;
mod sampling;
mod testing;
mod words;

pub use chat_template::ChatTemplateArgs;
pub use constraint::ConstraintArgs;
pub use drafts::DraftArgs;
pub use presets::{Applied, PresetArgs, PresetUse};
pub use prompt_file::PromptFileArgs;
pub use run::RunArgs;
pub use sampling::SamplingArgs;
pub use terrace_engine::options::{Output, PathList, directory, output, output_or_folder, output_or_pipe};
pub use testing::TestingArgs;
pub use words::Words;

use crate::error::CliError;
use crate::source::hit_curve;
use crate::user_dirs::user_dirs;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use terrace_engine::Options;
use terrace_engine::options::{
    CacheOptions, ComputeOptions, ContextOptions, DeviceOptions, EstimateOptions, FollowingOptions,
    HotOptions, IoOptions, KernelOptions, LearnOptions, MemoryOptions, ReplicaOptions,
};

/// Help of MODEL, the same for all commands.
pub const MODEL_HELP: &str = "A .gguf file (for a split model, its first shard), or hf:owner/repo[:file]";

/// Placement: the options that `terrace plan` shares with every command that loads a model.
#[derive(Debug, Clone, Args)]
pub struct PlacementArgs {
    /// RAM.
    #[command(flatten)]
    pub memory: MemoryOptions,
    /// Accelerators.
    #[command(flatten)]
    pub devices: DeviceOptions,
    /// Experts on accelerators.
    #[command(flatten)]
    pub hot: HotOptions,
    /// Tokens.
    #[command(flatten)]
    pub context: ContextOptions,
    /// Expectations.
    #[command(flatten)]
    pub estimates: EstimateOptions,
    /// Other disks.
    #[command(flatten)]
    pub replicas: ReplicaOptions,
}

/// Everything that decides how a model is loaded and computed.
#[derive(Debug, Clone, Args)]
pub struct EngineArgs {
    /// Placement.
    #[command(flatten)]
    pub placement: PlacementArgs,
    /// Inputs that the placement follows.
    #[command(flatten)]
    pub following: FollowingOptions,
    /// Reading.
    #[command(flatten)]
    pub io: IoOptions,
    /// Slots.
    #[command(flatten)]
    pub cache: CacheOptions,
    /// Learning.
    #[command(flatten)]
    pub learn: LearnOptions,
    /// Computing.
    #[command(flatten)]
    pub compute: ComputeOptions,
    /// Whose kernels compute.
    #[command(flatten)]
    pub kernels: KernelOptions,
    /// Let llama.cpp keep all weights in its repacked layouts, as its own programs do: on some
    /// processors this decodes faster; it rounds differently, so tokens differ, and memory must
    /// hold the model twice
    #[arg(long, help_heading = "Advanced", env = "TERRACE_REPACK", conflicts_with_all = ["ram_budget", "stream", "mmap", "plan", "n_gpu_layers", "cpu_moe", "n_cpu_moe", "rpc", "hot_cache", "override_tensor", "layer_skip", "lossy", "verify", "replica"])]
    pub repack: bool,
    /// Presets.
    #[command(flatten)]
    pub presets: PresetArgs,
    /// The same options as words of a command line.
    #[arg(skip)]
    pub words: Words,
}

impl PlacementArgs {
    /// Makes the engine's options of these, with those of the program's user and defaults for the rest. A
    /// trace is replayed with `policy`.
    ///
    /// # Errors
    /// The options contradict each other, or the file of a trace cannot be read as one.
    pub fn options(&self, cache: CacheOptions) -> Result<Options, CliError> {
        let Self { memory, devices, hot, context, estimates, replicas } = self.clone();
        contradictions::of_memory(&memory)?;
        let hits = hit_curve::read(estimates.hits, &cache.cache_policy)?;
        Ok(Options {
            memory,
            devices,
            hot,
            context,
            estimates: EstimateOptions { hits, ..estimates },
            replicas,
            cache,
            user: user_dirs(),
            ..Options::default()
        })
    }
}

impl EngineArgs {
    /// Makes the engine's options: one sequence, nothing recorded, nothing replaced. Commands adjust what
    /// they need otherwise.
    ///
    /// # Errors
    /// The options contradict each other, or the file of a trace cannot be read as one.
    pub fn options(&self, model: PathBuf, testing: &TestingArgs) -> Result<Options, CliError> {
        // Presets became default values before these options were parsed.
        let Self { placement, following, io, cache, learn, compute, kernels, repack, presets: _, words: _ } =
            self.clone();
        contradictions::of_learning(&learn)?;
        let mut options = Options {
            model,
            mode: testing.mode(repack),
            following,
            io,
            learn,
            compute,
            kernels,
            testing: testing.options.clone(),
            ..placement.options(cache)?
        };
        if testing.stock {
            // The stock side of a comparison reads its file itself.
            (options.io.verify, options.replicas) = (false, ReplicaOptions::default());
        }
        Ok(options)
    }
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use clap::Command;
    use std::fmt::Debug;
    use terrace_engine::options::PromptCacheOptions;
    use terrace_plan::Budget;

    /// The group as a command line without words sets it.
    fn unset<T: Args>() -> T {
        let matches = T::augment_args(Command::new("terrace")).try_get_matches_from(["terrace"]).unwrap();
        T::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn what_nobody_sets_is_the_engines_default() {
        fn text(value: &impl Debug) -> String {
            format!("{value:?}")
        }
        let EngineArgs { placement, following, io, cache, learn, compute, kernels, .. } = unset();
        let PlacementArgs { memory, devices, hot, context, estimates, replicas } = placement;
        let probing = DeviceOptions { rpc_probe: true, ..DeviceOptions::default() };
        let keeping = PromptCacheOptions { cache_ram: Budget::Auto, ..PromptCacheOptions::default() };
        let engine = Options::default();
        for (unset, default) in [
            (text(&kernels), text(&engine.kernels)),
            (text(&memory), text(&engine.memory)),
            (text(&devices), text(&probing)),
            (text(&hot), text(&engine.hot)),
            (text(&context), text(&engine.context)),
            (text(&estimates), text(&engine.estimates)),
            (text(&replicas), text(&engine.replicas)),
            (text(&following), text(&engine.following)),
            (text(&io), text(&engine.io)),
            (text(&cache), text(&engine.cache)),
            (text(&learn), text(&engine.learn)),
            (text(&compute), text(&engine.compute)),
            (text(&unset::<PromptCacheOptions>()), text(&keeping)),
        ] {
            assert_eq!(unset, default);
        }
    }
}
