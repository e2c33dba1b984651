//! Makes the source of drafts that the options ask for.

use super::Drafts;
use super::drafter::Drafter;
use super::model::DraftModel;
use super::mtp::MtpLayers;
use super::ngram::Ngram;
use super::recorded::Replay;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::options::{DraftOptions, DraftSource, most_drafts};
use crate::unfit::{NoDrafts, Unfit};
use terrace_model::MtpUse;

/// Makes the source of an engine's drafts; `None` if there are to be none. `mtp`: how the MTP layers are
/// used that were loaded.
///
/// # Errors
/// [`Unfit::Drafts`] if drafts were asked for and cannot be checked; errors of loading a draft model.
pub(crate) fn open(
    engine: &Engine,
    options: &DraftOptions,
    mtp: MtpUse,
) -> Result<Option<Drafts>, EngineError> {
    let source = options.source();
    if source == DraftSource::Off {
        return Ok(None);
    }
    let auto = source == DraftSource::Auto;
    let without = |reason: &NoDrafts| match auto {
        true => tracing::info!("no drafts: {reason}"),
        false => tracing::warn!("no drafts: {reason}"),
    };
    if let Some(reason) = cannot_check(engine) {
        if !auto && !options.draft_optional {
            return Err(Unfit::Drafts(reason).into());
        }
        without(&reason);
        return Ok(None);
    }
    if auto && never_pays(engine) {
        without(&NoDrafts::Planned);
        return Ok(None);
    }
    if engine.uses_devices() {
        if auto || options.draft_optional {
            without(&NoDrafts::Devices);
            return Ok(None);
        }
        tracing::warn!("{}: where two tokens are nearly equal, the text may differ", NoDrafts::Devices);
    }
    let most = most_drafts(options.draft_max, !engine.shapes().is_empty());
    let drafter: Box<dyn Drafter> = match &source {
        DraftSource::Off => return Ok(None),
        DraftSource::Auto | DraftSource::Ngram => Box::new(Ngram),
        DraftSource::Model(path) => Box::new(DraftModel::load(path, engine)?),
        DraftSource::Mtp => Box::new(MtpLayers::new(engine, mtp)?),
        DraftSource::Recorded(recorded) => Box::new(Replay::new(recorded.clone())),
    };
    // To have the first draft of a model, all of the text must go through it. That is soon repaid only
    // where passes wait for matrices from the disk.
    let waits = engine.plan().placement.as_ref().is_some_and(|plan| !plan.streamed.is_empty());
    let eager = waits || !matches!(source, DraftSource::Model(_));
    Ok(Some(Drafts::new(drafter, most as usize, options.draft_ungated, eager)))
}

/// Returns true if no drafts pay by the plan, however many are right.
fn never_pays(engine: &Engine) -> bool {
    let estimate = engine.plan().placement.as_ref().and_then(|plan| plan.estimate.as_ref());
    let gain = estimate.and_then(|estimate| estimate.drafts.as_ref());
    gain.is_some_and(|gain| gain.pays_from.is_none())
}

/// Why tokens of a pass cannot be computed as if each were alone, or not be taken back.
pub fn cannot_check(engine: &Engine) -> Option<NoDrafts> {
    if engine.weights().is_none() {
        return Some(NoDrafts::Stock);
    }
    if engine.plan().lossy.as_ref().is_some_and(|lossy| lossy.settings.routes()) {
        return Some(NoDrafts::Lossy);
    }
    if engine.model().has_states() {
        return Some(NoDrafts::States);
    }
    None
}
