//! Writes what was planned as one file; what all ways of writing have in common.

use crate::convert::Conversion;
use crate::error::QuantizeError;
use crate::metadata::MetadataRule;
use crate::plan::QuantizePlan;
use crate::planned::PlannedTensor;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;
use terrace_ggml::gguf::write::{Header, Value};
use terrace_model::ByteSize;
use terrace_platform::file::{FileId, free_space};
use terrace_platform::input_file;
use terrace_platform::own_file::{Form, OwnFile};
use terrace_store::part_file::{PartFile, SealedFile, folder};

pub const FILE: OwnFile = OwnFile::new("a GGUF file", Form::Begins(b"GGUF"));

/// Progress of the work.
#[derive(Clone, Copy, Debug)]
pub struct QuantizeProgress<'p> {
    /// Bytes of the model converted so far.
    pub done: ByteSize,
    /// Bytes of the model to convert.
    pub total: ByteSize,
    /// The current tensor.
    pub tensor: &'p str,
    /// Its new type.
    pub ty: &'p str,
}

/// The written files.
#[derive(Clone, Debug, Serialize)]
pub struct Written {
    /// The file; of a split model, its first.
    #[serde(serialize_with = "terrace_model::path_text::serialize")]
    pub path: PathBuf,
    pub files: usize,
    /// Total size of the files.
    pub size: ByteSize,
    /// Duration in seconds.
    pub seconds: f64,
}

/// Called with progress; may end the work.
pub type OnProgress<'f> = &'f mut dyn FnMut(&QuantizeProgress<'_>) -> ControlFlow<()>;

impl QuantizePlan {
    /// Size of the result as a single file.
    ///
    /// # Errors
    /// [`QuantizeError::Header`].
    pub fn file_size(&self) -> Result<ByteSize, QuantizeError> {
        let (header, end) = self.single_header()?;
        Ok(ByteSize(header.data_offset() + end))
    }

    /// Writes a single file, which appears as `out` when it is complete.
    ///
    /// # Errors
    /// [`QuantizeError`]; no output is left then.
    pub fn write(&self, out: &Path, progress: OnProgress<'_>) -> Result<Written, QuantizeError> {
        let started = Instant::now();
        let (header, end) = self.single_header()?;
        let size = ByteSize(header.data_offset() + end);
        self.check_targets(&[(out.to_owned(), size)])?;
        let sealed = self.fill(out, &header, &self.tensors, &mut TensorProgress::new(self, progress))?;
        sealed.publish().map_err(|source| QuantizeError::Write { path: out.into(), source })?;
        Ok(Written { path: out.into(), files: 1, size, seconds: started.elapsed().as_secs_f64() })
    }

    /// The model's metadata, changed as llama.cpp's quantiser changes it.
    pub(crate) fn metadata(&self) -> Result<Header, QuantizeError> {
        let mut header = Header::new();
        header.copy_metadata(&self.model.shards[0].path).map_err(Box::new)?;
        let kept = self.model.u64("general.file_type").and_then(|id| u32::try_from(id).ok());
        header.set_quantization(self.file_type.id().or(kept))?;
        for key in ["split.no", "split.count", "split.tensors.count"] {
            header.remove(key)?;
        }
        if let Some((path, imatrix)) = &self.imatrix {
            header.set("quantize.imatrix.file", short(&path.to_string_lossy()))?;
            if let Some(dataset) = imatrix.datasets.first() {
                header.set("quantize.imatrix.dataset", short(dataset))?;
            }
            header.set("quantize.imatrix.entries_count", u32::try_from(imatrix.len()).unwrap_or(u32::MAX))?;
            if let Some(chunks) = imatrix.chunks {
                header.set("quantize.imatrix.chunks_count", chunks)?;
            }
        }
        for MetadataRule { key, value } in &self.metadata {
            header.set(key, value.clone())?;
        }
        Ok(header)
    }

    /// The header of a file with all tensors, and the length of their data after it.
    fn single_header(&self) -> Result<(Header, u64), QuantizeError> {
        let mut header = self.metadata()?;
        let mut end = 0;
        for tensor in &self.tensors {
            let index = add(&mut header, tensor)?;
            end = header.tensor_offset(index) + padded(tensor.size.bytes(), &header);
        }
        Ok((header, end))
    }

    /// Checks that the results, with their sizes, overwrite no input, nor another file unless that is wished, and that
    /// there is space for them in each folder.
    pub(crate) fn check_targets(&self, files: &[(PathBuf, ByteSize)]) -> Result<(), QuantizeError> {
        self.check()?;
        let read = self.model.shards.iter().map(|shard| shard.path.as_path());
        let read = read.chain(self.imatrix.iter().map(|(path, _)| path.as_path()));
        let read: Vec<_> = read.filter_map(FileId::at).collect();
        let is_read = |path: &Path| FileId::at(path).is_some_and(|it| read.contains(&it));
        if let Some((path, _)) = files.iter().find(|(path, _)| is_read(path)) {
            return Err(QuantizeError::OntoInput(path.clone()));
        }
        let mut needed: BTreeMap<&Path, (&Path, ByteSize)> = BTreeMap::new();
        for (path, size) in files {
            if !self.overwrite && path.metadata().is_ok_and(|meta| meta.is_file() && meta.len() > 0) {
                return Err(QuantizeError::Exists(path.clone()));
            }
            FILE.check(path).map_err(|source| QuantizeError::Write { path: path.clone(), source })?;
            needed.entry(folder(path)).or_insert((path, ByteSize::ZERO)).1 += *size;
        }
        for (folder, (path, needed)) in needed {
            let path = path.to_owned();
            let available = match free_space(folder) {
                Ok(space) => ByteSize(space),
                Err(source) => return Err(QuantizeError::Write { path, source }),
            };
            if available < needed {
                return Err(QuantizeError::NoRoom { path, needed, available });
            }
        }
        Ok(())
    }

    /// Writes a file under a temporary name.
    pub(crate) fn fill<'t>(
        &self,
        path: &Path,
        header: &Header,
        tensors: impl IntoIterator<Item = &'t PlannedTensor>,
        told: &mut TensorProgress<'_, '_>,
    ) -> Result<SealedFile, QuantizeError> {
        let write_error = |source| QuantizeError::Write { path: path.into(), source };
        let part = PartFile::create(path, &FILE).map_err(write_error)?;
        let mut out = BufWriter::new(part.file());
        out.write_all(&header.to_bytes()).map_err(write_error)?;
        for planned in tensors {
            let tensor = &planned.from;
            let source = &self.model.shards[tensor.extent.file.index()].path;
            let (file, _) = input_file::open(source).map_err(|source_error| QuantizeError::Read {
                path: source.clone(),
                tensor: tensor.name.clone(),
                offset: tensor.extent.offset,
                source: source_error,
            })?;
            let importance = self.importance(tensor);
            let conversion = Conversion {
                path: source,
                file: &file,
                tensor,
                to: planned.to,
                importance,
                threads: self.threads,
            };
            conversion.run(&mut out, &write_error, &mut |done| told.tell(planned, done))?;
            told.done += tensor.extent.len;
            let padding = padded(planned.size.bytes(), header) - planned.size.bytes();
            out.write_all(&vec![0; usize::try_from(padding).expect("less than an alignment")])
                .map_err(write_error)?;
        }
        out.flush().map_err(write_error)?;
        drop(out);
        part.seal().map_err(write_error)
    }
}

/// Reports progress over all tensors.
pub(crate) struct TensorProgress<'p, 'f> {
    plan: &'p QuantizePlan,
    /// Bytes of the tensors before the current one.
    done: u64,
    progress: OnProgress<'f>,
}

impl<'p, 'f> TensorProgress<'p, 'f> {
    pub(crate) fn new(plan: &'p QuantizePlan, progress: OnProgress<'f>) -> Self {
        Self { plan, done: 0, progress }
    }

    fn tell(&mut self, planned: &PlannedTensor, done: u64) -> ControlFlow<()> {
        (self.progress)(&QuantizeProgress {
            done: ByteSize(self.done + done),
            total: self.plan.old_size(),
            tensor: &planned.from.name,
            ty: planned.ty(),
        })
    }
}

pub(crate) fn add(header: &mut Header, tensor: &PlannedTensor) -> Result<usize, QuantizeError> {
    let ty = tensor.to.map_or_else(|| tensor.from.ty.clone(), terrace_ggml::quantize::WeightType::describe);
    Ok(header.add_tensor_of(&tensor.from.name, &ty, tensor.from.shape)?)
}

pub(crate) fn padded(bytes: u64, header: &Header) -> u64 {
    bytes.next_multiple_of(header.alignment())
}

/// Shortens a value to the 127 bytes for which llama.cpp has room.
fn short(text: &str) -> Value {
    let end = (0..=text.len().min(127)).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    text[..end].into()
}
