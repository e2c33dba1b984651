//! Learn files of a loaded model: which experts to copy first, and how often each was used.

pub(crate) mod collect;
mod file;
mod kind;
pub(crate) mod sides;
mod warm_up;

pub use file::{LearnFiles, LearnOutput, check, named, read, write, write_record};
pub use kind::FILE;

pub use terrace_plan::model::expert_shapes as shapes;

pub use terrace_plan::copies::learned_layer_use as layer_use;
