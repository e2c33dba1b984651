//! The header of one file, read by ggml's own reader.

use super::context::Context;
use super::error::GgufError;
use super::{scan, types};
use crate::log;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use terrace_model::{Extent, FileIndex, MetaValue, Shard, TensorInfo, printable};
use terrace_platform::file::Positioned;
use terrace_platform::input_file;

/// Opens a file's header with ggml's own reader, after the bounded walk.
pub fn open_context(path: &Path) -> Result<Context, GgufError> {
    let (file, len) = open(path)?;
    let scan = scan::scan(path, &file, len)?;
    let (context, lines) = log::capture(|| Context::open(&file));
    context.ok_or_else(|| refused(path, &scan, &lines))
}

/// The header of one file.
pub struct FileHeader {
    pub shard: Shard,
    pub version: u32,
    pub alignment: u64,
    pub metadata: BTreeMap<String, MetaValue>,
    pub tensors: Vec<TensorInfo>,
}

/// Reads and checks the header.
pub fn read_file(path: &Path, index: FileIndex) -> Result<FileHeader, GgufError> {
    let (file, len) = open(path)?;
    parse(path, &file, len, index)
}

/// Reads and checks the header of an open file, which was found at `path`.
fn parse(path: &Path, file: &File, len: u64, index: FileIndex) -> Result<FileHeader, GgufError> {
    let scan = scan::scan(path, file, len)?;
    let (context, lines) = log::capture(|| Context::open(file));
    let Some(context) = context else {
        return Err(refused(path, &scan, &lines));
    };

    let data_offset = context.data_offset();
    let mut tensors = Vec::with_capacity(context.tensor_count());
    if context.tensor_count() != scan.shapes.len() {
        // The file was written to meanwhile.
        return Err(refused(path, &scan, &[]));
    }
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
        tensors.push(TensorInfo { name: tensor.name, ty, shape: scan.shapes[i], extent });
    }
    let end =
        tensors.iter().map(|tensor| tensor.extent.offset + tensor.extent.len).fold(data_offset, u64::max);
    if let Some(offset) = other_file(file, end, context.alignment(), len) {
        return Err(GgufError::Joined { path: path.into(), offset });
    }
    Ok(FileHeader {
        shard: Shard { path: path.into(), len, data_offset },
        version: context.version(),
        alignment: context.alignment(),
        metadata: context.metadata(),
        tensors,
    })
}

/// The offset of another GGUF file's magic number after the last tensor, with or without padding.
fn other_file(file: &File, end: u64, alignment: u64, len: u64) -> Option<u64> {
    let mut magic = [0; 4];
    let offsets = [Some(end), end.checked_next_multiple_of(alignment)];
    offsets.into_iter().flatten().filter(|&offset| offset < len).find(|&offset| {
        let read = file.read_exact_at(&mut magic, offset);
        read.is_ok() && magic == *b"GGUF"
    })
}

/// Opens a regular, non-empty file. Returns it and its length.
pub fn open(path: &Path) -> Result<(File, u64), GgufError> {
    let failed = |source: std::io::Error| match source.kind() {
        ErrorKind::NotFound => GgufError::Missing { path: path.into() },
        _ => GgufError::Unreadable { path: path.into(), offset: 0, source },
    };
    // Checked before opening: opening a pipe would wait for its writer.
    let meta = fs::metadata(path).map_err(failed)?;
    if meta.is_dir() {
        return Err(GgufError::Directory { path: path.into() });
    }
    if !meta.is_file() {
        return Err(GgufError::NotRegular { path: path.into() });
    }
    // Another file may have been put there since.
    let (file, len) = input_file::open(path).map_err(failed)?;
    if len == 0 {
        return Err(GgufError::Empty { path: path.into() });
    }
    Ok((file, len))
}

/// Why ggml's reader returned nothing, as precisely as can be told.
fn refused(path: &Path, scan: &scan::Scan, lines: &[String]) -> GgufError {
    // The reader requires the padding before the data section and, if that is missing, says only
    // that seeking failed.
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
    // The first line names the cause ("tensor 'x' has offset 7, expected 0"), later ones what
    // failed as a consequence. The function name in front means nothing to users.
    let line = lines.first().map_or("it gave no reason", String::as_str);
    let reason = line
        .split_once(": ")
        .filter(|(f, _)| f.starts_with("gguf_") || *f == "read")
        .map_or(line, |(_, r)| r);
    GgufError::Refused { path: path.into(), reason: printable(reason) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with one value and no tensors.
    fn header(name: &str) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3u32.to_le_bytes());
        bytes.extend(0u64.to_le_bytes());
        bytes.extend(1u64.to_le_bytes());
        for text in ["general.name", name] {
            if text == name {
                // The type of a string.
                bytes.extend(8u32.to_le_bytes());
            }
            bytes.extend((text.len() as u64).to_le_bytes());
            bytes.extend(text.as_bytes());
        }
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        bytes
    }

    #[test]
    fn a_file_that_is_swapped_between_the_walk_and_the_reader_is_not_read() {
        let dir = std::env::temp_dir().join(format!("terrace-gguf-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (path, other) = (dir.join("model.gguf"), dir.join("other.gguf"));
        fs::write(&path, header("walked")).unwrap();
        fs::write(&other, header("swapped")).unwrap();
        let (file, len) = open(&path).unwrap();
        fs::rename(&other, &path).unwrap();
        let walked = parse(&path, &file, len, FileIndex(0)).unwrap();
        let name = |header: &FileHeader| header.metadata["general.name"].clone();
        assert_eq!(name(&walked), MetaValue::Str("walked".into()));
        assert_eq!(name(&read_file(&path, FileIndex(0)).unwrap()), MetaValue::Str("swapped".into()));
        fs::remove_dir_all(&dir).unwrap();
    }
}
