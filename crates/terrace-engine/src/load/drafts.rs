//! The source of a run's drafts: decided with the plan, which has to know what is loaded for them.

use super::mtp::check_mtp;
use super::scene::{PlanBase, PlanInput};
use crate::error::EngineError;
use crate::options::{DraftOptions, DraftSource, Mode};
use crate::unfit::Unfit;
use terrace_model::MtpUse;
use terrace_plan::Plan;

/// Makes the scene with the drafts that the run gets, and its plan; no plan in stock runs, which check no
/// drafts, as is said later. Each source that comes into question is tried once: MTP layers by themselves if
/// their plan says that they pay, what was asked for, and nothing if it is optional and cannot be had.
///
/// # Errors
/// As [`PlanInput::of`] and [`PlanInput::plan`]; [`Unfit::Drafts`] if drafts that are not optional cannot be had.
pub fn planned<'a>(ground: &'a PlanBase<'a>) -> Result<(PlanInput<'a>, Option<Plan>), EngineError> {
    let asked = &ground.options.drafts;
    let with = |draft| PlanInput::of(ground, DraftOptions { draft: Some(draft), ..asked.clone() });
    if matches!(ground.options.mode, Mode::Stock { .. }) {
        return Ok((PlanInput::of(ground, asked.clone())?, None));
    }
    let how = ground.header.file.mtp_use();
    if asked.source() == DraftSource::Auto && matches!(how, MtpUse::Drafts { .. }) {
        let drafting = with(DraftSource::Mtp).and_then(|scene| Ok((scene.plan()?, scene)));
        let drafting = drafting.ok().filter(|(plan, _)| drafts_pay(plan));
        tracing::info!(pays = drafting.is_some(), "the model has MTP layers");
        if let Some((plan, scene)) = drafting {
            return Ok((scene, Some(plan)));
        }
    }
    let usable = if asked.source() == DraftSource::Mtp { check_mtp(how) } else { Ok(()) };
    let scene = match usable.map_err(EngineError::from).and_then(|()| PlanInput::of(ground, asked.clone())) {
        Err(EngineError::Unfit(Unfit::Drafts(reason))) if asked.draft_optional => {
            tracing::warn!("no drafts: {reason}");
            with(DraftSource::Off)?
        }
        made => made?,
    };
    let plan = scene.plan()?;
    Ok((scene, Some(plan)))
}

/// Returns true if a plan says that drafts pay. Runs with devices have none by themselves.
fn drafts_pay(plan: &Plan) -> bool {
    let gain = plan.estimate.as_ref().and_then(|estimate| estimate.drafts);
    plan.devices.is_empty() && plan.hot.is_empty() && gain.is_some_and(|gain| gain.pays())
}
