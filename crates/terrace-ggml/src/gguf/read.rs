//! A model's header, from one file or from all its shards.

use super::error::GgufError;
use super::file::{open, open_context, read_file};
use super::{scan, split, types};
use crate::pin::mtp;
use std::collections::HashMap;
use std::path::Path;
use terrace_model::{FileIndex, ModelFile, TensorType, printable};

/// Reads the headers of the model at `path`: one file, or all shards if it is the first of a split
/// model (`…-00001-of-00005.gguf`; the others are expected in the same directory).
///
/// # Errors
/// See [`GgufError`]. A returned model is complete: every extent lies within its file.
pub fn read(path: &Path) -> Result<ModelFile, GgufError> {
    let mut model = read_one(path)?;
    split::add_siblings(path, &mut model)?;
    if model.str("general.architecture").is_none() {
        return Err(GgufError::NoArchitecture { path: path.into() });
    }
    check_experts(&model)?;
    Ok(model)
}

/// Checks the numbers of a model that is to be loaded or planned.
///
/// # Errors
/// [`GgufError::Impossible`].
pub fn check_numbers(model: &ModelFile) -> Result<(), GgufError> {
    let path = || model.shards.first().map(|shard| shard.path.clone()).unwrap_or_default();
    match model.impossible_number() {
        None => Ok(()),
        Some(number) => Err(GgufError::Impossible { path: path(), number }),
    }
}

/// The first token that a vocabulary has more than once, as the file writes it, with two of its numbers.
/// `None` if there is none, or if the file cannot be read.
pub fn repeated_token(path: &Path) -> Option<(String, usize, usize)> {
    let mut known = HashMap::new();
    let tokens = open_context(path).ok()?.strings("tokenizer.ggml.tokens");
    let repeated = |(number, token): (usize, String)| {
        let before = known.insert(token.clone(), number)?;
        Some((token, before, number))
    };
    tokens.into_iter().enumerate().find_map(repeated)
}

/// Reads the header of a single file: a whole model, a shard, or a file with some of a model's
/// tensors.
///
/// # Errors
/// See [`GgufError`]. Every returned extent lies within the file.
pub fn read_one(path: &Path) -> Result<ModelFile, GgufError> {
    let header = read_file(path, FileIndex(0))?;
    let mut model = ModelFile {
        shards: vec![header.shard],
        version: header.version,
        alignment: header.alignment,
        metadata: header.metadata,
        tensors: header.tensors,
        mtp: None,
    };
    model.mtp = mtp::support(model.architecture());
    Ok(model)
}

/// Length of a file's header in bytes: everything before its tensor data. Only the header is
/// walked, so the file may end after it.
///
/// # Errors
/// If the file cannot be read, or the header is damaged or truncated.
pub fn header_len(path: &Path) -> Result<u64, GgufError> {
    let (file, len) = open(path)?;
    Ok(scan::scan(path, &file, len)?.table_end)
}

/// The tensor type with ggml's number `id`, or `None` if ggml does not know it or no longer
/// supports it.
pub fn tensor_type(id: u32) -> Option<TensorType> {
    types::describe(id)
}

/// Checks that the bytes of each expert tensor divide by the model's expert count.
fn check_experts(model: &ModelFile) -> Result<(), GgufError> {
    let Some(experts) = model.arch_u64("expert_count").filter(|&n| n > 0) else {
        return Ok(());
    };
    for tensor in &model.tensors {
        let role = tensor.name.ends_with("_exps.weight") && tensor.shape.dims() == 3;
        if role && !tensor.extent.len.is_multiple_of(experts) {
            return Err(GgufError::ExpertSplit {
                path: model.shards[tensor.extent.file.index()].path.clone(),
                tensor: printable(&tensor.name),
                bytes: tensor.extent.len,
                experts,
            });
        }
    }
    Ok(())
}
