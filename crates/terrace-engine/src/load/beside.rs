//! Runs beside a loaded model: copies of experts, the timeline, the warm start, the watcher.

use super::progress::LoadProgress;
use super::scene::PlanInput;
use super::weights::Loaded;
use super::wishes::wishes_of;
use super::{devices, hot, hot_asked, hot_division};
use crate::error::EngineError;
use crate::pressure;
use crate::record::Record;
use crate::timeline::TimelineFile;
use crate::warm;
use std::ops::ControlFlow;
use std::sync::Arc;
use terrace_backend::warm::{FirstUses, first_uses};
use terrace_backend::{ExpertUsage, Weights};
use terrace_host::pressure::Watcher;
use terrace_lanes::Sending;
use terrace_model::ModelFile;
use terrace_model::learn::Reported;
use terrace_plan::Budget;
use terrace_plan::copies::Weighting;
use terrace_plan::model::expert_groups;

/// Parts that run beside a model; none in stock runs.
#[derive(Default)]
pub struct Beside {
    /// Counts of the experts' uses; `None` for models without experts.
    pub usage: Option<Arc<ExpertUsage>>,
    /// Copies of experts on devices.
    pub hot: Option<hot::HotPlan>,
    /// Adapts the budget; `None` if it is fixed.
    pub watcher: Option<Watcher>,
}

/// Starts what runs beside a loaded model, whose context exists. `progress` is called while devices are filled,
/// and may end it.
///
/// # Errors
/// Errors of the store, and of the system's memory; [`EngineError::Cancelled`].
pub fn begin(
    scene: &PlanInput<'_>,
    loaded: &Loaded,
    mut record: Option<&mut Record>,
    progress: &mut dyn FnMut(LoadProgress) -> ControlFlow<()>,
) -> Result<Beside, EngineError> {
    let (options, header, file) = (scene.options, scene.ground.header, &*scene.file);
    let (Some(weights), Some(plan)) = (&loaded.weights, &loaded.plan) else { return Ok(Beside::default()) };
    weights.store().reset_stats();
    weights.reset_foretold();
    let usage = counts(file, weights).filter(|_| !options.testing.uncounted);
    weights.observer().usage.clone_from(&usage);
    let learns = header.learn.output.as_ref().is_some_and(|output| output.reported == Reported::Full);
    if let Some(usage) = usage.as_ref().filter(|_| learns) {
        usage.time_layers();
    }
    let (traced, learned) = (options.record.trace.is_some(), header.learn.first.as_ref());
    let first = match &usage {
        Some(usage) if !traced => {
            if let Some(record) = &mut record {
                record.count_uses(usage);
            }
            first_uses(learned, record.as_deref().map(Record::before), usage)
        }
        _ => FirstUses::default(),
    };
    if traced && learned.is_some() {
        tracing::warn!("the learn file has no effect while a trace is recorded: replays have none");
    }
    let by_uses = options.hot.hot_weighting != Weighting::Even;
    let asked = hot_asked::Asked {
        wishes: &wishes_of(options),
        hot: &options.hot,
        counts: if by_uses { &first } else { &[] },
        learned,
        planned: &plan.hot,
        transit: &plan.transit,
        sending: if options.devices.op_offload { options.testing.sending } else { Sending::Off },
        speeds: &hot_division::speeds(file, options),
        offload: options.devices.op_offload,
        traced,
    };
    let hot = hot::begin(file, weights, asked);
    *weights.pieces() = devices::pieces(plan, &options.devices);
    if header.timeline.is_some() {
        TimelineFile::start(weights);
    }
    if !first.is_empty() {
        warm::begin(file, weights, &first, progress)?;
    }
    // A budget from a plan file is as explicit as one given directly.
    let budget = if plan.auto_budget { Budget::Auto } else { Budget::Bytes(plan.budget) };
    let watcher = match options.following.adapt.applies(budget) {
        true => pressure::follow(weights, plan, options.testing.simulated_memory.as_deref())?,
        false => None,
    };
    Ok(Beside { usage, hot: Some(hot), watcher })
}

/// Zero counts for the experts of all layers; `None` for a model without experts.
fn counts(file: &ModelFile, weights: &Weights) -> Option<Arc<ExpertUsage>> {
    let layers: Vec<_> = expert_groups(file).iter().map(|group| (group.layer, group.experts)).collect();
    (!layers.is_empty()).then(|| Arc::new(ExpertUsage::new(layers, &weights.layout())))
}
