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

/// The error of an expert that is dropped, in units of noise of the same size: the better of those tried with two files on two
/// texts (`docs/benchmarks/quality.md`, "Misses in fewer bits").
const DROPPING_COSTS: f64 = 2.0;

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
    /// Bytes of the model's own tensors of these names.
    full: u64,
}

/// A loaded file of experts in fewer bits, as a quality budget uses it.
#[derive(Clone, Debug)]
pub struct LoadedLow {
    /// Its path.
    pub path: PathBuf,
    /// See [`LowFile::below_per_drop`].
    pub below_per_drop: f64,
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
        let (mut tensors, mut all) = (Vec::new(), 0);
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
                all += full;
            }
        }
        if tensors.is_empty() {
            return Err(unlike("its experts are not smaller than the model's".into()));
        }
        Ok(Self { path: path.to_owned(), file, tensors, full: all })
    }

    /// The weight below which an expert is read in fewer bits, in units of that below which it is dropped, at which both save
    /// as many bytes for the same loss.
    ///
    /// The loss of an expert with a share `w` of the weights grows with `(w e)^2`, where `e` is the relative error: 1 if it
    /// is dropped. Reading it in fewer bits saves a share `b` of its bytes; dropping it instead, what is left. Dropping costs
    /// more than that, because what is lost is no noise.
    pub fn below_per_drop(&self) -> f64 {
        let bytes: u64 = self.tensors.iter().map(|tensor| tensor.extent.len).sum();
        let weights: u64 = self.tensors.iter().map(|tensor| tensor.shape.elements()).sum();
        let saved = 1.0 - bytes as f64 / self.full as f64;
        let error = relative_error(bytes as f64 * 8.0 / weights as f64);
        DROPPING_COSTS * (saved / (1.0 - saved) * (1.0 - error * error)).sqrt() / error
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The part of it that a loaded model keeps.
    pub fn loaded(&self) -> LoadedLow {
        LoadedLow { path: self.path.clone(), below_per_drop: self.below_per_drop() }
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

/// The relative error of weights of so many bits: 0.30 of Q2_K, 0.08 of Q4_K (`docs/benchmarks/negative.md`, "Experts in two
/// planes").
fn relative_error(bits: f64) -> f64 {
    (0.9 - bits).exp2().clamp(1.0 / 1024.0, 0.9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_about_those_that_were_measured() {
        for (bits, measured) in [(2.63, 0.296), (4.5, 0.071)] {
            let error = relative_error(bits);
            assert!((0.8..1.3).contains(&(error / measured)), "{bits} bits: {error}");
        }
        assert!(relative_error(0.5) < 1.0 && relative_error(64.0) > 0.0);
    }
}
