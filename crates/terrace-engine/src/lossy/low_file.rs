//! A second file with a model's experts in fewer bits.

use crate::error::EngineError;
use crate::unfit::{NoLoss, Unfit};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use terrace_ggml::cpu::Kernels;
use terrace_ggml::{DataType, gguf};
use terrace_model::{Extent, FileIndex, ModelFile, TensorInfo};
use terrace_plan::model::expert_groups;
use terrace_platform::file::Positioned;
use terrace_platform::input_file;
use terrace_store::identity::file_identity;

/// Bytes of each tensor that its file is known by.
const SAMPLE: u64 = 4096;

/// Identity of a file of experts in fewer bits: another one of the same types has other bytes at
/// the beginnings of its tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LowIdentity {
    /// Bytes of all files.
    pub bytes: u64,
    /// CRC-32 of the first file's header.
    pub header: u32,
    /// CRC-32 of the first 4 KiB of each of its expert tensors.
    pub sample: u32,
}

/// A file with the experts of a model in fewer bits.
#[derive(Clone, Debug)]
pub struct LowFile {
    path: PathBuf,
    file: ModelFile,
    /// The tensors that are of use: the model's name for it, by layers all of whose matrices are there
    /// and smaller together.
    tensors: Vec<TensorInfo>,
}

impl LowFile {
    /// Reads the header at `path`, and checks that it has the experts of `model` in the same shapes, and in
    /// fewer bits.
    ///
    /// # Errors
    /// [`EngineError::Gguf`] for a file that is no model or too short; [`NoLoss`] for one that is not
    /// of this model's experts.
    pub fn open(path: &Path, model: &ModelFile) -> Result<Self, EngineError> {
        let file = gguf::read(path)?;
        let unlike = |reason: String| {
            let path = path.to_owned();
            EngineError::from(Unfit::from(NoLoss::Unlike { path, reason }))
        };
        if file.architecture() != model.architecture() {
            let (one, other) = (file.architecture(), model.architecture());
            return Err(unlike(format!("its architecture is {one}, not {other}")));
        }
        let mut tensors = Vec::new();
        for group in expert_groups(model) {
            let own = group.roles.iter().map(|&role| &model.tensors[role]);
            let (mut full, mut fewer, mut found) = (0, 0, Vec::new());
            for tensor in own {
                let name = &tensor.name;
                let Some(low) = file.tensor(name) else { return Err(unlike(format!("it has no {name}"))) };
                if low.shape != tensor.shape {
                    return Err(unlike(format!(
                        "{name} has another shape: {}, not {}",
                        low.shape, tensor.shape
                    )));
                }
                if DataType::from_id(low.ty.id).and_then(Kernels::of).is_none() {
                    return Err(unlike(format!("there is no product with {name}, which is {}", low.ty.name)));
                }
                full += tensor.extent.len;
                fewer += low.extent.len;
                found.push(low.clone());
            }
            if fewer < full {
                tensors.append(&mut found);
            }
        }
        if tensors.is_empty() {
            return Err(unlike("its experts are not smaller than the model's".into()));
        }
        Ok(Self { path: path.to_owned(), file, tensors })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its files, in the order of their numbers.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> {
        self.file.shards.iter().map(|shard| shard.path.clone())
    }

    /// Its tensors that are of use: names, and extents and types in files whose numbers begin at `first`.
    pub fn tensors(&self, first: u32) -> impl Iterator<Item = (&str, Extent, DataType)> {
        self.tensors.iter().filter_map(move |tensor| {
            let file = FileIndex(first + tensor.extent.file.0);
            Some((tensor.name.as_str(), Extent { file, ..tensor.extent }, DataType::from_id(tensor.ty.id)?))
        })
    }

    /// Its identity.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn identity(&self) -> io::Result<LowIdentity> {
        let identity = file_identity(&self.file)?;
        let (mut crc, mut part) = (crc32fast::Hasher::new(), vec![0; SAMPLE as usize]);
        for tensor in &self.tensors {
            let (shard, _) = input_file::open(&self.file.shards[tensor.extent.file.index()].path)?;
            let len = usize::try_from(tensor.extent.len.min(SAMPLE)).expect("a few kilobytes");
            shard.read_exact_at(&mut part[..len], tensor.extent.offset)?;
            crc.update(&part[..len]);
        }
        Ok(LowIdentity { bytes: identity.bytes, header: identity.header, sample: crc.finalize() })
    }
}
