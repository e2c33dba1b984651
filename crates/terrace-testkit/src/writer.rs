//! Writes a model to one or more files.

use crate::encoded::encoded;
use crate::error::Error;
use crate::pool::Pools;
use crate::spec::Spec;
use crate::tensor::{Fill, Tensor};
use crate::{fill, layout, metadata};
use std::fs::{self, File};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use terrace_ggml::gguf::write::{Header, HeaderError};

/// The source of the data.
pub(crate) enum Source {
    /// Every value is made and quantised.
    Values,
    /// Blocks come from pools if the tensor allows it.
    Pools(Pools),
    /// There are no data: the file is sparse, of the right length.
    Sparse,
}

/// Writes the model to `path`, replacing an existing file, and returns the path.
///
/// This is for tiny models, since every weight is made and quantised. See [`crate::big`] for large
/// ones.
pub fn write(spec: &Spec, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
    let path = path.as_ref().to_owned();
    write_files(spec, std::slice::from_ref(&path), Source::Values)?;
    Ok(path)
}

/// Writes the model to `shards` files in `dir`, with the names and metadata of `llama-gguf-split`
/// (`<arch>-00001-of-00003.gguf`). Returns the paths; the first one is the one to load.
pub fn write_split(spec: &Spec, dir: impl AsRef<Path>, shards: u16) -> Result<Vec<PathBuf>, Error> {
    let paths = shard_paths(&dir.as_ref().join(spec.arch.name()), shards);
    write_files(spec, &paths, Source::Values)?;
    Ok(paths)
}

/// Returns the paths `<prefix>-00001-of-00003.gguf` and so on.
pub(crate) fn shard_paths(prefix: &Path, shards: u16) -> Vec<PathBuf> {
    let name = |no| {
        let mut name = prefix.as_os_str().to_owned();
        name.push(format!("-{no:05}-of-{shards:05}.gguf"));
        PathBuf::from(name)
    };
    (1..=shards).map(name).collect()
}

pub(crate) fn write_files(spec: &Spec, paths: &[PathBuf], mut source: Source) -> Result<(), Error> {
    spec.check()?;
    let tensors = layout::tensors(spec);
    if paths.is_empty() || paths.len() > tensors.len() {
        let reason = format!("{} tensors cannot be divided into {} files", tensors.len(), paths.len());
        return Err(Error::Spec { arch: spec.arch.name(), reason });
    }
    for (no, (path, part)) in paths.iter().zip(parts(&tensors, paths.len())).enumerate() {
        let header = header(spec, part, no, paths.len(), tensors.len()).map_err(Error::header(path))?;
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).map_err(Error::io(dir))?;
        }
        write_file(spec, path, &header, part, &mut source)?;
    }
    Ok(())
}

/// Divides the tensors into consecutive parts, one per file: none empty, with about equal bytes.
fn parts(tensors: &[Tensor], files: usize) -> Vec<&[Tensor]> {
    let total: u64 = tensors.iter().map(Tensor::bytes).sum();
    let mut parts = Vec::with_capacity(files);
    let (mut start, mut done) = (0, 0u64);
    for file in 1..=files {
        let goal = total / files as u64 * file as u64;
        let last = tensors.len() - (files - file);
        let mut end = start;
        while end < last && (end == start || file == files || done < goal) {
            done += tensors[end].bytes();
            end += 1;
        }
        parts.push(&tensors[start..end]);
        start = end;
    }
    parts
}

fn header(spec: &Spec, part: &[Tensor], no: usize, files: usize, all: usize) -> Result<Header, HeaderError> {
    let mut header = Header::new();
    if no == 0 {
        metadata::describe(spec, &mut header)?;
    }
    if files > 1 {
        header.set("split.no", no as u16)?;
        header.set("split.count", files as u16)?;
        header.set("split.tensors.count", all as i32)?;
    }
    for tensor in part {
        header.add_tensor(&tensor.name, tensor.ty, tensor.shape)?;
    }
    Ok(header)
}

fn write_file(
    spec: &Spec,
    path: &Path,
    header: &Header,
    part: &[Tensor],
    source: &mut Source,
) -> Result<(), Error> {
    let file = File::create(path).map_err(Error::io(path))?;
    let mut out = BufWriter::with_capacity(4 << 20, file);
    let mut at = header.data_offset();
    out.write_all(&header.to_bytes()).map_err(Error::io(path))?;
    let mut end = at;
    for (index, tensor) in part.iter().enumerate() {
        let start = header.data_offset() + header.tensor_offset(index);
        end = start + tensor.bytes();
        if matches!(source, Source::Sparse) {
            continue;
        }
        pad(&mut out, start - at).map_err(Error::io(path))?;
        if tensor.fill == Fill::Hole {
            out.seek(SeekFrom::Start(end)).map_err(Error::io(path))?;
            at = end;
            continue;
        }
        write_tensor(spec, path, tensor, source, &mut out)?;
        at = end;
    }
    // The last tensor is padded like the others, as by ggml's own writer.
    let len = end.next_multiple_of(header.alignment());
    let file = out.into_inner().map_err(|e| Error::io(path)(e.into_error()))?;
    file.set_len(len).map_err(Error::io(path))
}

fn write_tensor(
    spec: &Spec,
    path: &Path,
    tensor: &Tensor,
    source: &mut Source,
    out: &mut impl Write,
) -> Result<(), Error> {
    if let Source::Pools(pools) = source
        && let Some(written) = pools.write(spec, tensor, out)?
    {
        return written.map_err(Error::io(path));
    }
    for index in 0..tensor.slices() {
        let values = fill::slice(spec, tensor, index);
        let encode = || fill::encode(&tensor.name, tensor.ty, &values, tensor.row());
        let bytes = encoded(tensor.ty, &values, tensor.row(), encode)?;
        out.write_all(&bytes).map_err(Error::io(path))?;
    }
    Ok(())
}

fn pad(out: &mut impl Write, len: u64) -> std::io::Result<()> {
    out.write_all(&vec![0u8; len as usize])
}
