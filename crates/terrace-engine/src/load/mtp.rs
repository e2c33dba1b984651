//! The model's MTP layers: llama.cpp loads them on request only.

use super::context_ask::HeaderModel;
use super::header::Header;
use crate::options::{DraftOptions, DraftSource, Mode, Options};
use crate::unfit::{NoDrafts, Unfit};
use std::borrow::Cow;
use std::path::Path;
use terrace_model::{ModelFile, MtpUse};

/// Weights to load for these drafts: the model without MTP layers that none come from, and how those are
/// used that are loaded.
pub fn loaded_for<'a>(
    header: &'a Header,
    drafts: &DraftOptions,
    options: &Options,
) -> (Cow<'a, ModelFile>, MtpUse) {
    let asked = options.mode == Mode::Terrace && drafts.draft == Some(DraftSource::Mtp);
    match header.file.mtp_use() {
        how @ MtpUse::Drafts { .. } if asked => (Cow::Borrowed(&header.file), how),
        _ => {
            let mut file = Cow::Borrowed(&header.file);
            if !file.mtp_layers().is_empty() {
                leave_out_mtp(&options.model, file.to_mut());
            }
            (file, MtpUse::None)
        }
    }
}

/// Checks that MTP layers that are used like this draft.
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
fn leave_out_mtp(path: &Path, file: &mut ModelFile) {
    if let Some(loaded) = HeaderModel::read(path).map(|header| header.tensors()) {
        file.leave_out_mtp(|name| loaded.contains(name));
    }
}
