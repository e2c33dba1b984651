//! Learn files of a loaded model: which experts to copy first, and how often each was used.

pub(crate) mod collect;
mod file;
pub(crate) mod sides;
mod warm_up;

pub use file::{LearnFiles, LearnOutput, check, named, read, write, write_statistics};

pub use terrace_plan::model::expert_shapes as shapes;

use terrace_model::ModelFile;
use terrace_model::learn::{ExpertUses, LearnLayer};
use terrace_plan::copies::{LayerUse, Uses};
use terrace_plan::model::ExpertGroup;

/// What a learn file tells of a layer: its counts and times as they are, as the original weighs them.
/// Without times, the layer's is in proportion to the bytes that a token uses.
pub fn layer_use(model: &ModelFile, group: &ExpertGroup, learned: &LearnLayer) -> LayerUse {
    let uses = |uses: &ExpertUses| Uses { expert: uses.expert, hits: uses.all(), hot: uses.hot };
    let [_, cold] = learned.totals();
    let total = learned.time("total_moe_time");
    LayerUse {
        layer: group.layer.0,
        experts: learned.experts.iter().map(uses).collect(),
        join_wait_us: learned.time("parallel_join_wait_time"),
        hot_us: learned.time("parallel_hot_lane_wall_time"),
        cold_us: learned.time("parallel_cold_lane_wall_time"),
        cold_pairs: learned.cold_per_call.unwrap_or_else(|| cold as f64 / learned.calls.max(1) as f64),
        total_us: if total > 0.0 { total } else { group.token_bytes(model).bytes() as f64 },
    }
}
