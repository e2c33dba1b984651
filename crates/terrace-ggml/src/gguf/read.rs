//! A model's header: of one file, or of all its shards.

use super::error::{GgufError, printable};
use super::file::{open, read_file};
use super::{scan, split, types};
use std::path::Path;
use terrace_model::{FileIndex, ModelFile, TensorType};

/// Reads the headers of the model at `path`: one file, or all shards if it is the first of a split model
/// (`…-00001-of-00005.gguf`; the others are looked for beside it).
///
/// # Errors
/// See [`GgufError`]. A model that is returned has all its bytes: every extent lies within its file.
pub fn read(path: &Path) -> Result<ModelFile, GgufError> {
    let mut model = read_one(path)?;
    split::add_siblings(path, &mut model)?;
    if model.str("general.architecture").is_none() {
        return Err(GgufError::NoArchitecture { path: path.into() });
    }
    check_experts(&model)?;
    Ok(model)
}

/// Reads the header of one file alone: a whole model, a shard, or a file with some tensors in it.
///
/// # Errors
/// See [`GgufError`]; every extent of what is returned lies within the file.
pub fn read_one(path: &Path) -> Result<ModelFile, GgufError> {
    let header = read_file(path, FileIndex(0))?;
    Ok(ModelFile {
        shards: vec![header.shard],
        version: header.version,
        alignment: header.alignment,
        metadata: header.metadata,
        tensors: header.tensors,
    })
}

/// Bytes of a file's header: everything before its tensor data. Only the walk over it, so nothing after it need be there.
///
/// # Errors
/// A file that cannot be read, or a header that is damaged or cut off.
pub fn header_len(path: &Path) -> Result<u64, GgufError> {
    let (file, len) = open(path)?;
    Ok(scan::scan(path, &file, len)?.table_end)
}

/// The tensor type with ggml's number `id`, unless ggml does not know it (or no longer does).
pub fn tensor_type(id: u32) -> Option<TensorType> {
    types::describe(id)
}

/// Expert tensors must divide into their model's experts.
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
