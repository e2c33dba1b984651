//! Memory that drafts take beside the model.

use crate::drafts::DRAFT_UBATCH;
use crate::error::EngineError;
use crate::options::{DraftSource, MOST_DRAFTS};
use crate::unfit::{NoDrafts, Unfit};
use terrace_model::{ByteSize, KvTypes, ModelFile, MtpUse};
use terrace_plan::Wishes;
use terrace_plan::model::context_size;

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
