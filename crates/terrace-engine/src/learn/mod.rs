//! Learn files of a loaded model: which experts to copy first, and how often each was used.

pub(crate) mod collect;
mod file;
pub(crate) mod sides;
mod warm_up;

pub use file::{LearnFiles, LearnOutput, check, named, read, write, write_statistics};

use terrace_model::ModelFile;
use terrace_model::learn::LayerShape;
use terrace_plan::model::expert_groups;

/// The layers of a model that have experts.
pub fn shapes(model: &ModelFile) -> Vec<LayerShape> {
    let shape = |group: &terrace_plan::model::ExpertGroup| LayerShape {
        layer: group.layer.0,
        experts: group.experts,
        used: group.top_k(model),
    };
    expert_groups(model).iter().map(shape).collect()
}
