//! Everything that a caller can choose, with a struct for each concern.

mod adapters;
mod cache;
mod compute;
mod context;
mod devices;
mod drafts;
mod embeddings;
mod estimates;
mod hot;
mod io;
mod placement;
mod prompt_cache;
mod record;
mod reload;
mod testing;
mod vision;

pub use adapters::AdapterOption;
pub use cache::{CacheOptions, Lookahead};
pub use compute::ComputeOptions;
pub use context::ContextOptions;
pub use devices::DeviceOptions;
pub use drafts::{DraftOptions, DraftSource, Recorded};
pub(crate) use drafts::{MOST as MOST_DRAFTS, MOST_WITH_EXPERTS as MOST_DRAFTS_WITH_EXPERTS};
pub use embeddings::{EmbeddingOptions, Embeds};
pub use estimates::EstimateOptions;
pub use hot::HotOptions;
pub use io::IoOptions;
pub use placement::PlacementOptions;
pub use prompt_cache::PromptCacheOptions;
pub use record::RecordOptions;
pub use reload::{OnReload, ReloadOptions};
pub use terrace_plan::KvChoice;
pub use testing::{StockSplit, TestingOptions};
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
        /// Whether it converts weights to its repacked layouts, as its own programs do by default.
        repack: bool,
    },
}

/// How to load and run a model.
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
    /// Placement of weights in RAM.
    pub placement: PlacementOptions,
    /// Layers on devices.
    pub devices: DeviceOptions,
    /// Copies of experts on devices.
    pub hot: HotOptions,
    /// The context.
    pub context: ContextOptions,
    /// Embeddings.
    pub embeddings: EmbeddingOptions,
    /// Images.
    pub vision: VisionOptions,
    /// Reading.
    pub io: IoOptions,
    /// Slots.
    pub cache: CacheOptions,
    /// Kept conversations.
    pub prompt_cache: PromptCacheOptions,
    /// Computing.
    pub compute: ComputeOptions,
    /// Drafts.
    pub drafts: DraftOptions,
    /// Recording.
    pub record: RecordOptions,
    /// Replacing tensors.
    pub reload: ReloadOptions,
    /// Estimating.
    pub estimates: EstimateOptions,
    /// Where measurements of the machine and its disks are kept.
    pub user: UserDirs,
    /// Testing.
    pub testing: TestingOptions,
}
