//! Where a run's drafts come from, and whether the model's MTP layers are loaded for them: decided before
//! the plan, which has to know what is loaded.

use super::context_ask::HeaderModel;
use super::header::Header;
use super::scene::{PlannedMachine, Scene};
use crate::drafts::DRAFT_UBATCH;
use crate::error::EngineError;
use crate::options::{DraftSource, MOST_DRAFTS, Mode, Options};
use crate::unfit::{NoDrafts, Unfit};
use std::path::Path;
use terrace_model::{ByteSize, KvTypes, ModelFile, MtpUse};
use terrace_plan::model::context_size;
use terrace_plan::{Plan, Wishes};

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
        let planned = Scene::of(self, options, machine).and_then(|mut scene| {
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

/// Memory for a draft model and its context, or what drafting with the model's MTP layers takes beside
/// the layers themselves, which the plan places.
///
/// # Errors
/// [`Unfit::Drafts`] if it is not available; the draft model cannot be read.
pub fn draft_memory(
    source: &DraftSource,
    file: &ModelFile,
    wishes: &Wishes,
    available: ByteSize,
) -> Result<ByteSize, EngineError> {
    let slots = u64::from(wishes.context.slots());
    let context = |file: &ModelFile, outputs| {
        let size = context_size(file, wishes.tokens(file), KvTypes::F16, DRAFT_UBATCH, outputs);
        slots * size.total().bytes()
    };
    let (needed, reason) = match source {
        DraftSource::Model(path) => {
            let draft = terrace_ggml::gguf::read(path)?;
            let needed = ByteSize(draft.size().bytes() + context(&draft, DRAFT_UBATCH));
            (needed, NoDrafts::Memory { path: path.clone(), needed, available })
        }
        DraftSource::Mtp if file.mtp_use() != MtpUse::None => {
            let layers = file.mtp_layers();
            let mut only = file.clone();
            only.tensors.retain(|tensor| tensor.layer().is_none_or(|layer| layers.contains(&layer.0)));
            let needed = ByteSize(context(&only, MOST_DRAFTS + 1) + hidden_bytes(file, wishes));
            (needed, NoDrafts::MtpMemory { needed, available })
        }
        _ => return Ok(ByteSize::ZERO),
    };
    if needed > available { Err(Unfit::Drafts(reason).into()) } else { Ok(needed) }
}

/// Bytes of the hidden states that a pass leaves.
fn hidden_bytes(file: &ModelFile, wishes: &Wishes) -> u64 {
    let rows = match file.mtp_use() {
        MtpUse::Drafts { whole: true } => wishes.batch(file),
        _ => MOST_DRAFTS + 1,
    };
    u64::from(rows) * file.arch_u64("embedding_length").unwrap_or(0) * size_of::<f32>() as u64
}
