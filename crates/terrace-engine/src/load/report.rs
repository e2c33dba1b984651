//! The report of a load.

use super::context::Made;
use super::hot::HotPlan;
use super::scene::PlanInput;
use super::weights::{Loaded, Reads};
use crate::adapters::Adapters;
use crate::options::Mode;
use crate::report::PlanReport;
use terrace_plan::model::prompt_cache;

/// Reports what was loaded, and how. Where drafts come from is known when their source is open.
pub fn report(
    scene: &PlanInput<'_>,
    loaded: &Loaded,
    made: &Made,
    adapters: &Adapters,
    hot: Option<HotPlan>,
) -> PlanReport {
    let PlanInput { options, kv_type, context_bytes, threads, threads_batch, .. } = *scene;
    let header = scene.ground.header;
    let (plan, reads) = (loaded.plan.as_ref(), loaded.reads.as_ref());
    let repacks = options.mode == Mode::Stock { repack: true };
    let stock = if repacks { "repacked" } else { "stock" };
    PlanReport {
        mode: plan.map_or(stock.into(), |plan| plan.mode.to_string()),
        placement: plan.cloned(),
        io: reads.map(|reads| reads.io.clone()),
        direct: reads.map(|Reads { direct, .. }| *direct),
        io_reason: reads.map(|reads| reads.reason.clone()),
        tuned_gbps: reads.and_then(|reads| reads.tuned_gbps),
        hot,
        drafts: None,
        adapters: adapters.facts().to_vec(),
        projector: header.projector.as_ref().map(|projector| projector.facts.clone()),
        layer_skip: header.layer_skip.clone(),
        lossy: header.lossy_used().cloned(),
        context: made.tokens,
        positions: scene.file.positions(),
        slots: made.slots,
        kv_type,
        context_bytes,
        prompt_cache: plan.map_or_else(
            || prompt_cache(&scene.file, &scene.machine, &scene.wishes, context_bytes),
            |plan| plan.prompt_cache,
        ),
        batch: made.batch,
        ubatch: made.ubatch,
        threads,
        threads_batch,
    }
}
