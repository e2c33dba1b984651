//! Importance matrices: how much each column of a model's matrices matters, as measured by
//! llama.cpp's `imatrix` tool.
//!
//! Reads both of the tool's formats: GGUF, and the older one of plain records. Never allocates more
//! than the file's length justifies.

use crate::gguf::{self, GgufError};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use terrace_model::{MetaValue, ModelFile, TensorInfo, printable};
use terrace_platform::file::Positioned;
use terrace_platform::input_file;

/// Matrices in one file; the largest models have some ten thousand.
const MAX_ENTRIES: u64 = 1 << 18;
/// Maximum length in bytes of a name in the older format.
const MAX_NAME: u64 = 4096;

/// The contents of an importance file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imatrix {
    /// By tensor name: one value of 0 or more per column, for each matrix (expert) of the tensor in
    /// turn.
    entries: BTreeMap<String, Vec<f32>>,
    /// The texts that it was measured on.
    pub datasets: Vec<String>,
    /// Number of chunks of these texts, if known.
    pub chunks: Option<u32>,
}

/// Why an importance file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ImatrixError {
    /// The GGUF header cannot be read.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The contents are not an importance matrix.
    #[error("{}: is not an importance matrix: {reason} (at offset {offset})", path.display())]
    Contents {
        path: PathBuf,
        /// The fault.
        reason: String,
        /// File offset in bytes.
        offset: u64,
    },
}

impl Imatrix {
    /// Reads a file of either format.
    ///
    /// # Errors
    /// [`ImatrixError`].
    pub fn read(path: &Path) -> Result<Self, ImatrixError> {
        let failed = |source| ImatrixError::Io { path: path.into(), source };
        let (mut file, len) = input_file::open(path).map_err(failed)?;
        let mut magic = [0; 4];
        let is_gguf = file.read_exact(&mut magic).is_ok() && &magic == b"GGUF";
        if is_gguf {
            return Self::read_gguf(path, &file);
        }
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        Legacy { path, len, input: BufReader::new(&file), at: 0 }.read()
    }

    /// The importance values of a tensor.
    pub fn get(&self, tensor: &str) -> Option<&[f32]> {
        self.entries.get(tensor).map(Vec::as_slice)
    }

    /// Gives all columns of a matrix the value 1, as if it had seen no input, where all of them are 0:
    /// such values would make all of its weights zero. `columns` is the number of columns of the
    /// tensor's matrices. Returns the numbers of these matrices.
    pub fn fill_blank(&mut self, tensor: &str, columns: u64) -> Vec<u64> {
        let Some(values) = self.entries.get_mut(tensor) else { return Vec::new() };
        let columns = usize::try_from(columns).unwrap_or(usize::MAX).max(1);
        let matrices = (0..).zip(values.chunks_mut(columns));
        let blank = matrices.filter(|(_, values)| values.iter().all(|&value| value == 0.0));
        let filled = blank.map(|(number, values)| {
            values.fill(1.0);
            number
        });
        filled.collect()
    }

    /// Number of tensors with values.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Keeps the values of tensors with these names alone.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.entries.retain(|name, _| keep(name));
    }

    /// Returns true if no tensor has values.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn read_gguf(path: &Path, file: &File) -> Result<Self, ImatrixError> {
        let header = gguf::read_one(path)?;
        let contents = |offset, reason: String| ImatrixError::Contents { path: path.into(), reason, offset };
        for key in ["imatrix.datasets", "imatrix.chunk_count", "imatrix.chunk_size"] {
            if !header.metadata.contains_key(key) {
                return Err(contents(0, format!("`{key}` is missing")));
            }
        }
        let by_name: BTreeMap<&str, &TensorInfo> =
            header.tensors.iter().map(|t| (t.name.as_str(), t)).collect();
        let mut entries = BTreeMap::new();
        for tensor in &header.tensors {
            if let Some(name) = tensor.name.strip_suffix(".counts")
                && !by_name.contains_key(format!("{name}.in_sum2").as_str())
            {
                return Err(contents(tensor.extent.offset, format!("`{name}` has counts but no sums")));
            }
            let Some(name) = tensor.name.strip_suffix(".in_sum2") else { continue };
            let Some(counts) = by_name.get(format!("{name}.counts").as_str()) else {
                return Err(contents(tensor.extent.offset, format!("`{name}` has sums but no counts")));
            };
            let sums = floats(path, file, tensor)?;
            let counts = floats(path, file, counts)?;
            let values = means(&sums, &counts);
            let values =
                values.map_err(|reason| contents(tensor.extent.offset, format!("`{name}`: {reason}")))?;
            entries.insert(name.to_owned(), values);
        }
        if entries.is_empty() {
            return Err(contents(0, "no entries".into()));
        }
        Ok(Self { entries, datasets: datasets(&header), chunks: chunks(header.u64("imatrix.chunk_count")) })
    }
}

/// Means of squares that were summed per column, over `counts` rows of input for each matrix. The
/// columns of a matrix without input all get 1.
fn means(sums: &[f32], counts: &[f32]) -> Result<Vec<f32>, String> {
    if counts.is_empty() || sums.is_empty() || !sums.len().is_multiple_of(counts.len()) {
        return Err(format!("{} sums for {} matrices", sums.len(), counts.len()));
    }
    if let Some(bad) = sums.iter().chain(counts).find(|v| !v.is_finite() || **v < 0.0) {
        return Err(format!("{bad} is not a sum of squares"));
    }
    let columns = sums.len() / counts.len();
    let of_matrix = |(sums, count): (&[f32], &f32)| {
        let count = count.round();
        sums.iter().map(|sum| if count > 0.0 { sum / count } else { 1.0 }).collect::<Vec<f32>>()
    };
    Ok(sums.chunks_exact(columns).zip(counts).flat_map(of_matrix).collect())
}

fn datasets(header: &ModelFile) -> Vec<String> {
    let text = |value: &MetaValue| match value {
        MetaValue::Str(text) => Some(text.clone()),
        _ => None,
    };
    match header.metadata.get("imatrix.datasets") {
        Some(MetaValue::Array(values)) => values.iter().filter_map(text).collect(),
        _ => Vec::new(),
    }
}

fn chunks(count: Option<u64>) -> Option<u32> {
    count.and_then(|n| u32::try_from(n).ok()).filter(|&n| n > 0)
}

fn floats(path: &Path, file: &File, tensor: &TensorInfo) -> Result<Vec<f32>, ImatrixError> {
    if tensor.ty.name != "f32" {
        let reason = format!("`{}` is {} instead of f32", tensor.name, tensor.ty.name);
        return Err(ImatrixError::Contents { path: path.into(), reason, offset: tensor.extent.offset });
    }
    // The extent lies within the file: the header's reader has checked it.
    let mut bytes = vec![0; usize::try_from(tensor.extent.len).expect("a part of a file in memory")];
    file.read_exact_at(&mut bytes, tensor.extent.offset)
        .map_err(|source| ImatrixError::Io { path: path.into(), source })?;
    Ok(bytes.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect())
}

/// The older format: the number of entries; for each a name, a number of calls and values; then the
/// number of chunks and the name of a dataset, both of which may be missing. Lengths and counts
/// have 32 bits.
struct Legacy<'f> {
    path: &'f Path,
    len: u64,
    input: BufReader<&'f File>,
    at: u64,
}

impl Legacy<'_> {
    fn read(mut self) -> Result<Imatrix, ImatrixError> {
        let count = self.count("number of entries", MAX_ENTRIES)?;
        let mut entries = BTreeMap::new();
        for _ in 0..count {
            let len = self.count("name length", MAX_NAME)?;
            let name = self.text(len)?;
            let calls = self.i32()?;
            let values = self.count("number of values", (self.len - self.at).saturating_sub(4) / 4)?;
            let start = self.at;
            let bytes = self.bytes(values * 4)?;
            let sums: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
            // Without calls, the values are taken unscaled.
            let calls = if calls > 0 { calls as f32 } else { 1.0 };
            let values = means(&sums, &[calls])
                .map_err(|reason| self.contents(start, format!("`{}`: {reason}", printable(&name))))?;
            if entries.insert(name.clone(), values).is_some() {
                return Err(self.contents(start, format!("duplicate entry `{}`", printable(&name))));
            }
        }
        let mut datasets = Vec::new();
        let mut chunks = None;
        if self.at < self.len {
            chunks = self::chunks(u64::try_from(self.i32()?).ok());
        }
        if self.at < self.len {
            let len = self.count("dataset name length", MAX_NAME)?;
            datasets.push(self.text(len)?);
        }
        Ok(Imatrix { entries, datasets, chunks })
    }

    fn contents(&self, offset: u64, reason: String) -> ImatrixError {
        ImatrixError::Contents { path: self.path.into(), reason, offset }
    }

    /// Reads a number from 1 to `limit`.
    fn count(&mut self, what: &str, limit: u64) -> Result<u64, ImatrixError> {
        let offset = self.at;
        let found = self.i32()?;
        let in_range = u64::try_from(found).ok().filter(|n| (1..=limit).contains(n));
        in_range.ok_or_else(|| self.contents(offset, format!("{found} is not a valid {what}")))
    }

    fn i32(&mut self) -> Result<i32, ImatrixError> {
        let bytes = self.bytes(4)?;
        Ok(i32::from_le_bytes(bytes.try_into().expect("four bytes")))
    }

    fn text(&mut self, len: u64) -> Result<String, ImatrixError> {
        let offset = self.at;
        let bytes = self.bytes(len)?;
        String::from_utf8(bytes).map_err(|_| self.contents(offset, "a name is not UTF-8".into()))
    }

    /// Reads `len` bytes. Allocates nothing if the file is too short.
    fn bytes(&mut self, len: u64) -> Result<Vec<u8>, ImatrixError> {
        if len > self.len - self.at {
            return Err(self.contents(self.at, format!("it ends after {} bytes", self.len)));
        }
        let mut bytes = vec![0; usize::try_from(len).expect("a part of a file in memory")];
        self.input
            .read_exact(&mut bytes)
            .map_err(|source| ImatrixError::Io { path: self.path.into(), source })?;
        self.at += len;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_without_input_have_no_opinion() {
        assert_eq!(means(&[2.0, 4.0, 6.0, 8.0], &[2.0, 0.0]).unwrap(), [1.0, 2.0, 1.0, 1.0]);
        for (sums, counts) in
            [(&[1.0][..], &[][..]), (&[1.0, 2.0, 3.0], &[1.0, 1.0]), (&[-1.0], &[1.0]), (&[1.0], &[f32::NAN])]
        {
            assert!(means(sums, counts).is_err(), "{sums:?} {counts:?}");
        }
    }
}
