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
pub use presets::{PresetArgs, PresetUse};
pub use prompt_file::PromptFileArgs;
pub use run::RunArgs;
pub use sampling::SamplingArgs;
pub use terrace_engine::options::{Output, PathList, directory, output, output_or_folder, output_or_pipe};
pub use testing::TestingArgs;
pub use words::Words;

use crate::error::CliError;
use crate::source::hit_curve;
use crate::user_dirs::user_dirs;
use clap::Args;
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
    #[command(flatten)]
    pub memory: MemoryOptions,
    #[command(flatten)]
    pub devices: DeviceOptions,
    #[command(flatten)]
    pub hot: HotOptions,
    #[command(flatten)]
    pub context: ContextOptions,
    #[command(flatten)]
    pub estimates: EstimateOptions,
    #[command(flatten)]
    pub replicas: ReplicaOptions,
}

/// Everything that decides how a model is loaded and computed.
#[derive(Debug, Clone, Args)]
pub struct EngineArgs {
    #[command(flatten)]
    pub placement: PlacementArgs,
    /// Inputs that the placement follows.
    #[command(flatten)]
    pub following: FollowingOptions,
    #[command(flatten)]
    pub io: IoOptions,
    #[command(flatten)]
    pub cache: CacheOptions,
    #[command(flatten)]
    pub learn: LearnOptions,
    #[command(flatten)]
    pub compute: ComputeOptions,
    #[command(flatten)]
    pub kernels: KernelOptions,
    /// Let llama.cpp keep all weights in its repacked layouts, as its own programs do: on some
    /// processors this decodes faster; it rounds differently, so tokens differ, and memory must
    /// hold the model twice
    #[arg(long, help_heading = "Advanced", env = "TERRACE_REPACK", conflicts_with_all = ["ram_budget", "stream", "mmap", "plan", "n_gpu_layers", "cpu_moe", "n_cpu_moe", "rpc", "hot_cache", "override_tensor", "layer_skip", "lossy", "verify", "replica"])]
    pub repack: bool,
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_sets_is_the_engines_default() {
        let unset: EngineArgs = terrace_model::cli::unset();
        let mut expected = Options { user: user_dirs(), ..Options::default() };
        // A library measures no links unless it is asked to.
        expected.devices.rpc_probe = true;
        let options = unset.options(PathBuf::new(), &TestingArgs::default()).unwrap();
        assert_eq!(format!("{options:?}"), format!("{expected:?}"));
    }
}
