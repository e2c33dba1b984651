//! Reads what GGUF files say about their tensors, through ggml's own reader.
//!
//! Nothing here trusts a file: a bounded walk ([`scan`]) refuses headers that would make ggml's reader allocate
//! what a few damaged bytes claim, ggml's reader then parses and checks, and what it lets through is checked
//! against the files' lengths and, for split models, between the shards. No tensor data is read.

pub(crate) mod context;
mod error;
mod scan;
mod split;
mod types;
pub mod write;

pub use error::GgufError;

use context::Context;
use error::printable;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use terrace_model::{Extent, FileIndex, MetaValue, ModelFile, Shard, TensorInfo, TensorType};

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

/// Bytes of a file's header: everything before its tensor data. Only the walk over it, so nothing behind it need be there.
///
/// # Errors
/// A file that cannot be read, or a header that is damaged or cut off.
pub fn header_len(path: &Path) -> Result<u64, GgufError> {
    let (file, len) = open(path)?;
    Ok(scan::scan(path, &file, len)?.table_end)
}

/// ggml's own view of a file's header, behind the bounded walk.
pub(crate) fn open_context(path: &Path) -> Result<Context, GgufError> {
    let (file, len) = open(path)?;
    let scan = scan::scan(path, &file, len)?;
    let (context, lines) = crate::log::capture(|| Context::open(path));
    context.ok_or_else(|| refused(path, &scan, &lines))
}

/// The tensor type with ggml's number `id`, unless ggml does not know it (or no longer does).
pub fn tensor_type(id: u32) -> Option<TensorType> {
    types::describe(id)
}

/// What one file says.
struct FileHeader {
    shard: Shard,
    version: u32,
    alignment: u64,
    metadata: std::collections::BTreeMap<String, MetaValue>,
    tensors: Vec<TensorInfo>,
}

fn read_file(path: &Path, index: FileIndex) -> Result<FileHeader, GgufError> {
    let (file, len) = open(path)?;
    let scan = scan::scan(path, &file, len)?;
    let (context, lines) = crate::log::capture(|| Context::open(path));
    let Some(context) = context else {
        return Err(refused(path, &scan, &lines));
    };

    let data_offset = context.data_offset();
    let mut tensors = Vec::with_capacity(context.tensor_count());
    for i in 0..context.tensor_count() {
        let tensor = context.tensor(i);
        let unknown = || GgufError::UnknownType {
            path: path.into(),
            tensor: printable(&tensor.name),
            ty: tensor.ty,
            offset: 0,
        };
        let ty = types::describe(tensor.ty).ok_or_else(unknown)?;
        let truncated = |offset| GgufError::DataTruncated {
            path: path.into(),
            tensor: printable(&tensor.name),
            offset,
            len: tensor.bytes,
            file_len: len,
        };
        let Some(offset) = data_offset.checked_add(tensor.offset) else {
            return Err(truncated(u64::MAX));
        };
        if offset.checked_add(tensor.bytes).is_none_or(|end| end > len) {
            return Err(truncated(offset));
        }
        let extent = Extent { file: index, offset, len: tensor.bytes };
        tensors.push(TensorInfo { name: tensor.name, ty, shape: tensor.shape, extent });
    }
    Ok(FileHeader {
        shard: Shard { path: path.into(), len, data_offset },
        version: context.version(),
        alignment: context.alignment(),
        metadata: context.metadata(),
        tensors,
    })
}

fn open(path: &Path) -> Result<(File, u64), GgufError> {
    let failed = |source: std::io::Error| match source.kind() {
        ErrorKind::NotFound => GgufError::Missing { path: path.into() },
        _ => GgufError::Unreadable { path: path.into(), offset: 0, source },
    };
    // Asked before opening: opening a pipe would wait for its writer.
    let meta = fs::metadata(path).map_err(failed)?;
    if meta.is_dir() {
        return Err(GgufError::Directory { path: path.into() });
    }
    if !meta.is_file() {
        return Err(GgufError::NotRegular { path: path.into() });
    }
    let file = File::open(path).map_err(failed)?;
    let len = file.metadata().map_err(failed)?.len();
    if len == 0 {
        return Err(GgufError::Empty { path: path.into() });
    }
    Ok((file, len))
}

/// Why ggml's reader returned nothing, as precisely as can be said.
fn refused(path: &Path, scan: &scan::Scan, lines: &[String]) -> GgufError {
    // It wants the padding before the data section to exist, and says only that seeking failed.
    if let Some((tensor, len)) = &scan.first_tensor
        && let Some(offset) = scan.data_start()
        && offset > scan.file_len
        && lines.first().is_some_and(|line| line.contains("failed to seek"))
    {
        return GgufError::DataTruncated {
            path: path.into(),
            tensor: printable(tensor),
            offset,
            len: *len,
            file_len: scan.file_len,
        };
    }
    // The first line is about the cause ("tensor 'x' has offset 7, expected 0"), those behind it about
    // what therefore failed; the function's name in front says nothing to users.
    let line = lines.first().map_or("it gave no reason", String::as_str);
    let reason = line
        .split_once(": ")
        .filter(|(f, _)| f.starts_with("gguf_") || *f == "read")
        .map_or(line, |(_, r)| r);
    GgufError::Refused { path: path.into(), reason: printable(reason) }
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
