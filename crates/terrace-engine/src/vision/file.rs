//! A projector's file, looked at before llama.cpp sees it.

use super::params;
use crate::error::EngineError;
use crate::file_error::{FileError, FileRole};
use crate::options::VisionOptions;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::path::PathBuf;
use terrace_ggml::gguf;
use terrace_ggml::vision::{ProjectorParams, projector_memory};
use terrace_model::identity::FileFingerprint;
use terrace_model::{ByteSize, MetaValue, ModelFile, printable};
use terrace_store::identity::{file_fingerprint, file_identity, file_state};

/// Facts about a projector.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProjectorFacts {
    #[serde(serialize_with = "terrace_model::path_text::serialize")]
    pub path: PathBuf,
    /// Its kind: llama.cpp's name.
    pub kind: String,
    /// RAM that it takes: weights, and activations for an image of the usual size.
    pub bytes: ByteSize,
}

/// The file of a projector.
#[derive(Clone, Debug)]
pub struct ProjectorFile {
    pub facts: ProjectorFacts,
    pub params: ProjectorParams,
    /// Tells projectors apart.
    pub seed: [u8; 32],
}

/// Kinds of which the tokens of an image depend on what comes before it, which is not known where
/// images are prepared.
const PLACED: [&str; 2] = ["deepseek4v", "hunyuanvl"];

impl ProjectorFile {
    /// Reads the header of a projector. `None` if the options name none.
    ///
    /// # Errors
    /// [`EngineError::Gguf`]; [`EngineError::File`] if it is no projector for images.
    pub fn read(options: &VisionOptions) -> Result<Option<Self>, EngineError> {
        let Some(path) = &options.mmproj else { return Ok(None) };
        let file = gguf::read(path)?;
        let kind = kind(&file).map_err(|reason| FileError {
            role: FileRole::Projector,
            path: path.clone(),
            reason,
        })?;
        let params = params(options);
        let bytes = projector_memory(path, &params).max(file.size());
        let mut seed = Sha256::new();
        let fingerprint = file_state(path).and_then(|state| file_fingerprint(path, &state));
        if let (Ok(FileFingerprint { size, modified, changed, inode, sample }), Ok(identity)) =
            (fingerprint, file_identity(&file))
        {
            seed.update(size.to_le_bytes());
            seed.update(modified.to_le_bytes());
            seed.update(changed.to_le_bytes());
            seed.update(inode.to_le_bytes());
            seed.update(sample.to_le_bytes());
            seed.update(identity.header.to_le_bytes());
        }
        for bound in [options.image_min_tokens, options.image_max_tokens] {
            seed.update(bound.unwrap_or(0).to_le_bytes());
        }
        let facts = ProjectorFacts { path: path.clone(), kind, bytes };
        Ok(Some(Self { facts, params, seed: seed.finalize().into() }))
    }
}

/// Checks that layers with one of the matrices of attention have all three: llama.cpp takes each of
/// them as optional, and ends the process if it multiplies with one that is not there.
fn check_attention(file: &ModelFile) -> Result<(), String> {
    const MATRICES: [&str; 3] = ["attn_q.weight", "attn_k.weight", "attn_v.weight"];
    let names: BTreeSet<&str> = file.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    for tensor in &file.tensors {
        let layer = MATRICES.iter().find_map(|matrix| tensor.name.strip_suffix(matrix));
        let Some(layer) = layer.filter(|layer| layer.starts_with("v.blk.")) else { continue };
        let missing = MATRICES.map(|matrix| format!("{layer}{matrix}"));
        if let Some(missing) = missing.iter().find(|name| !names.contains(name.as_str())) {
            return Err(format!("has no tensor {}", printable(missing)));
        }
    }
    Ok(())
}

/// Checks that the layers of a projector of kind `mlp` have weights and biases: llama.cpp takes each of them as
/// optional, and computes with all of them.
fn check_layers(file: &ModelFile) -> Result<(), String> {
    let names: BTreeSet<&str> = file.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    // Yi's has a normalisation after each layer; others may have only one layer.
    let layers: &[u32] = match (names.contains("mm.3.weight"), names.contains("mm.2.weight")) {
        (true, _) => &[0, 1, 3, 4],
        (false, true) => &[0, 2],
        (false, false) => &[0],
    };
    let needed = layers.iter().flat_map(|layer| [format!("mm.{layer}.weight"), format!("mm.{layer}.bias")]);
    match needed.into_iter().find(|name| !names.contains(name.as_str())) {
        Some(missing) => Err(format!("has no tensor {missing}")),
        None => Ok(()),
    }
}

/// The kind of a projector. The error is the reason why the file is not one for images.
fn kind(file: &ModelFile) -> Result<String, String> {
    if file.architecture() != "clip" {
        let architecture = printable(file.architecture());
        return Err(format!("is not a projector (general.architecture is {architecture}, not clip)"));
    }
    if !matches!(file.metadata.get("clip.has_vision_encoder"), Some(MetaValue::Bool(true))) {
        return Err("has no vision encoder".into());
    }
    if file.shards.len() > 1 {
        return Err("is split into several files, which llama.cpp does not read".into());
    }
    check_attention(file)?;
    let told = file.str("clip.projector_type").or_else(|| file.str("clip.vision.projector_type"));
    let kind = printable(told.unwrap_or_default());
    if ["mlp", "mlp_norm"].contains(&&kind[..]) {
        check_layers(file)?;
    }
    match PLACED.contains(&&kind[..]) {
        true => Err(format!("is of kind {kind}, whose images depend on where they are: not supported")),
        false => Ok(kind),
    }
}
