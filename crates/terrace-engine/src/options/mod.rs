//! Everything that a caller can choose, with a struct for each concern.
//!
//! A struct of options is a group of options of the command line, too: a field has the name of its option, its
//! documentation is the option's help, and its type reads the values. A group is defined in the leftmost crate
//! that has all of its types, so that those between read it: `terrace-store`, `terrace-plan` or here.

mod adapters;
mod compute;
mod drafts;
mod embeddings;
mod following;
mod given;
mod learn;
mod output;
mod prompt_cache;
mod record;
mod reload;
mod testing;
mod thinking;
mod vision;

pub use adapters::{AdapterOption, AdapterOptions, Adapters, adapters_in, scaled};
pub use compute::ComputeOptions;
pub(crate) use drafts::most_drafts;
pub use drafts::{DraftOptions, DraftSource, Recorded};
pub use drafts::{MAX_DRAFTS as MOST_DRAFTS, MOST_WITH_EXPERTS as MOST_DRAFTS_WITH_EXPERTS};
pub use embeddings::{EmbeddingOptions, Embeds};
pub use following::FollowingOptions;
pub use given::{GivenPrompt, GivenWork};
pub use learn::LearnOptions;
pub use output::Output;
pub use output::{output, output_or_folder, output_or_pipe};
pub use prompt_cache::{PromptCacheOptions, kept_size};
pub use record::RecordOptions;
pub use reload::{OnReload, ReloadOptions};
pub use terrace_kernels::{KernelChoice, KernelOptions};
pub use terrace_plan::KvChoice;
pub use terrace_plan::options::{
    ContextOptions, DeviceOptions, EstimateOptions, Hits, HotLanes, HotOptions, MemoryOptions, Mmap,
};
pub use terrace_store::options::{CacheOptions, IoOptions, Lookahead, PathList, ReplicaOptions};
pub use testing::TestingOptions;
pub use thinking::{Reasoning, ThinkingOptions};
pub use vision::VisionOptions;

use std::path::PathBuf;
use terrace_store::UserDirs;

/// Which backend runs the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The Terrace backend.
    #[default]
    Terrace,
    /// Plain llama.cpp with weights mapped from the file, for comparison.
    Stock {
        /// True if it converts weights to its repacked layouts, as its own programs do by default.
        repack: bool,
    },
}

/// Options of loading and running a model.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The GGUF file; of a split model, its first shard.
    pub model: PathBuf,
    /// The chat template (Jinja source) in place of the model's own.
    pub chat_template: Option<String>,
    /// Which backend runs it.
    pub mode: Mode,
    /// Adapters, by their numbers.
    pub adapters: Vec<AdapterOption>,
    pub memory: MemoryOptions,
    pub following: FollowingOptions,
    pub devices: DeviceOptions,
    pub hot: HotOptions,
    pub context: ContextOptions,
    /// Embeddings; `None` means that there are none, and that models that only embed are refused.
    pub embeddings: Option<EmbeddingOptions>,
    pub vision: VisionOptions,
    pub io: IoOptions,
    pub replicas: ReplicaOptions,
    pub cache: CacheOptions,
    pub prompt_cache: PromptCacheOptions,
    pub compute: ComputeOptions,
    pub kernels: KernelOptions,
    pub drafts: DraftOptions,
    pub learn: LearnOptions,
    pub record: RecordOptions,
    pub reload: ReloadOptions,
    pub estimates: EstimateOptions,
    /// The run's work, as far as it is known.
    pub given: GivenWork,
    /// Directories of measurements of the machine and its disks.
    pub user: UserDirs,
    pub testing: TestingOptions,
}

impl Options {
    /// Returns when the context for embeddings is made.
    pub fn embeds(&self) -> Embeds {
        self.embeddings.as_ref().map_or(Embeds::Never, EmbeddingOptions::made)
    }
}

/// Reads the name of a directory.
///
/// # Errors
/// There is no such directory.
pub fn directory(text: &str) -> Result<PathBuf, &'static str> {
    if std::path::Path::new(text).is_dir() { Ok(text.into()) } else { Err("must be a directory that exists") }
}
