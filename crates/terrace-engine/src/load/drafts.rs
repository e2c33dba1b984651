//! Where a run's drafts come from, and whether the model's MTP layers are loaded for them: decided before
//! the plan, which has to know what is loaded.

use super::context_ask::HeaderModel;
use super::header::Header;
use super::scene::{PlanInput, PlannedMachine};
use crate::error::EngineError;
use crate::options::{DraftSource, Mode, Options};
use crate::unfit::{NoDrafts, Unfit};
use std::path::Path;
use terrace_model::{ModelFile, MtpUse};
use terrace_plan::Plan;

impl Header {
    /// Settles the source of drafts, and leaves out MTP layers that none come from.
    ///
    /// # Errors
    /// [`Unfit::Drafts`] if they are to come from MTP layers and the model has none that draft.
    pub fn choose_drafts(
        &mut self,
        options: &Options,
        machine: PlannedMachine<'_>,
    ) -> Result<(), EngineError> {
        let stock = matches!(options.mode, Mode::Stock { .. });
        self.mtp = self.file.mtp_use();
        let drafts = matches!(self.mtp, MtpUse::Drafts { .. });
        match (self.drafts.source(), self.mtp) {
            // That stock runs check no drafts is said later.
            _ if stock => {}
            (DraftSource::Mtp, how) => match check_mtp(how) {
                Err(Unfit::Drafts(reason)) if self.drafts.draft_optional => self.without_drafts(&reason),
                checked => checked?,
            },
            (DraftSource::Auto, MtpUse::Drafts { .. }) => {
                self.drafts.draft = Some(DraftSource::Mtp);
                let pays = self.mtp_pays(options, machine);
                tracing::info!(pays, "the model has MTP layers");
                if !pays {
                    self.drafts.draft = Some(DraftSource::Auto);
                }
            }
            _ => {}
        }
        if stock || !drafts || self.drafts.draft != Some(DraftSource::Mtp) {
            self.mtp = MtpUse::None;
            leave_out_mtp(&options.model, &mut self.file);
        }
        Ok(())
    }

    /// Does without drafts, which cannot be had.
    pub fn without_drafts(&mut self, reason: &NoDrafts) {
        tracing::warn!("no drafts: {reason}");
        self.drafts.draft = Some(DraftSource::Off);
    }

    /// Whether the plan with the MTP layers says that drafts pay. Runs with devices have none by themselves.
    fn mtp_pays(&self, options: &Options, machine: PlannedMachine<'_>) -> bool {
        let planned = PlanInput::of(self, options, machine).and_then(|mut scene| {
            scene.settle()?;
            scene.plan()
        });
        planned.is_ok_and(|plan| drafts_pay(&plan))
    }
}

/// Whether a plan says that drafts pay. Runs with devices have none by themselves.
pub fn drafts_pay(plan: &Plan) -> bool {
    let gain = plan.estimate.as_ref().and_then(|estimate| estimate.drafts);
    plan.devices.is_empty() && plan.hot.is_empty() && gain.is_some_and(|gain| gain.pays())
}

/// Whether MTP layers that are used like this draft.
///
/// # Errors
/// [`Unfit::Drafts`] if they do not.
pub fn check_mtp(how: MtpUse) -> Result<(), Unfit> {
    match how {
        MtpUse::Drafts { .. } => Ok(()),
        MtpUse::States => Err(Unfit::Drafts(NoDrafts::States)),
        MtpUse::None => Err(Unfit::Drafts(NoDrafts::NoMtp)),
    }
}

/// Leaves out the tensors of MTP layers that llama.cpp does not load unless asked, as it says itself; none
/// if it says nothing. Asked only of models with such layers: it reads the vocabulary once more for it.
pub fn leave_out_mtp(path: &Path, file: &mut ModelFile) {
    if file.mtp_layers().is_empty() {
        return;
    }
    if let Some(loaded) = HeaderModel::read(path).map(|header| header.tensors()) {
        file.leave_out_mtp(|name| loaded.contains(name));
    }
}
