//! A model's tensors, experts and context, as its header describes them.

pub(crate) mod class;
pub(crate) mod context;
pub(crate) mod experts;
mod kv_heads;
pub(crate) mod metadata;
mod patterns;
mod prompt_cache;
pub(crate) mod selection;
pub(crate) mod summary;
mod summary_table;
pub(crate) mod working_set;

pub use class::{TensorClass, classify, classify_all};
pub use context::{ContextSize, DEFAULT_CONTEXT, agents_context, auto_ubatch, context_size, context_tokens};
pub use experts::{ExpertGroup, expert_groups, expert_shapes};
pub use kv_heads::check_kv_types;
pub use metadata::{Count, over_layers};
pub use patterns::override_patterns;
pub use prompt_cache::prompt_cache;
pub use selection::{MATRIX_MIN, Managed, Selection, managed};
pub use summary::{ClassSummary, ShardSummary, Summary, TypeSummary};
pub use working_set::slot_size;
