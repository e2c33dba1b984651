//! Writes what was planned as a split model: a tensor per file, or a file per disk.

use crate::disks::{Disk, TensorLoad, divide};
use crate::error::QuantizeError;
use crate::output::{OnProgress, TensorProgress, Written, add, padded};
use crate::plan::QuantizePlan;
use crate::planned::PlannedTensor;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;
use terrace_ggml::gguf::write::Header;
use terrace_model::ByteSize;
use terrace_platform::owner;
use terrace_store::part_file::folder;

/// A file of a split model.
struct Shard<'p> {
    path: PathBuf,
    tensors: Vec<&'p PlannedTensor>,
}

impl QuantizePlan {
    /// Writes a split model with one tensor per file: `PREFIX-00001-of-01097.gguf` has the metadata
    /// and no tensor; the others follow in llama.cpp's order, which is the same for every type. The
    /// files appear when all are complete, the first one last.
    ///
    /// # Errors
    /// [`QuantizeError`]; no output is left then.
    pub fn write_split(&self, prefix: &Path, progress: OnProgress<'_>) -> Result<Written, QuantizeError> {
        let groups = std::iter::once(vec![]).chain(self.tensors.iter().map(|tensor| vec![tensor]));
        let groups: Vec<_> = groups.collect();
        let count = counted(groups.len())?;
        let shard = |(number, tensors)| Shard { path: shard_path(prefix, number, count), tensors };
        self.write_shards((1..).zip(groups).map(shard).collect(), Vec::new(), progress)
    }

    /// Writes a split model with one file per disk, which each have a part of every layer in proportion to the
    /// disk's rate. The files are in the disks' folders; beside `prefix` are links to those that are not there, so
    /// that the first can be opened there. They appear when all are complete, the first one last.
    ///
    /// # Errors
    /// [`QuantizeError`]; no output is left then.
    pub fn write_on(
        &self,
        prefix: &Path,
        disks: &[Disk],
        progress: OnProgress<'_>,
    ) -> Result<Written, QuantizeError> {
        let count = counted(disks.len())?;
        let loads: Vec<TensorLoad> = self.tensors.iter().map(TensorLoad::from).collect();
        let rates: Vec<f64> = disks.iter().map(|disk| disk.rate).collect();
        let places = divide(&loads, &rates);
        let (mut shards, mut links) = (Vec::new(), Vec::new());
        for ((number, disk), index) in (1..).zip(disks).zip(0..) {
            let name = shard_path(prefix, number, count);
            let place = std::path::absolute(&disk.folder);
            let place = place.map_err(|source| QuantizeError::Write { path: name.clone(), source })?;
            let path = place.join(name.file_name().unwrap_or_default());
            if !is_same_folder(&place, folder(&name)) {
                links.push((path.clone(), name));
            }
            let own = self.tensors.iter().zip(&places).filter(|(_, place)| **place == index);
            shards.push(Shard { path, tensors: own.map(|(tensor, _)| tensor).collect() });
        }
        self.write_shards(shards, links, progress)
    }

    /// Writes these files, and then links to some of them (target, link).
    fn write_shards(
        &self,
        shards: Vec<Shard<'_>>,
        links: Vec<(PathBuf, PathBuf)>,
        progress: OnProgress<'_>,
    ) -> Result<Written, QuantizeError> {
        let started = Instant::now();
        let count = counted(shards.len())?;
        let tensors = i32::try_from(self.tensors.len()).unwrap_or(i32::MAX);
        let (mut headers, mut files) = (Vec::new(), Vec::new());
        for (number, shard) in (0u16..).zip(&shards) {
            let mut header = if number == 0 { self.metadata()? } else { Header::new() };
            for tensor in &shard.tensors {
                add(&mut header, tensor)?;
            }
            header.set("split.no", number)?;
            header.set("split.tensors.count", tensors)?;
            header.set("split.count", count)?;
            let data = shard.tensors.iter().map(|tensor| padded(tensor.size.bytes(), &header)).sum::<u64>();
            files.push((shard.path.clone(), ByteSize(header.data_offset() + data)));
            headers.push(header);
        }
        let size = files.iter().map(|(_, size)| *size).sum();
        let linked = links.iter().map(|(_, link)| (link.clone(), ByteSize::ZERO));
        self.check_targets(&files.iter().cloned().chain(linked).collect::<Vec<_>>())?;
        if let Some((target, name)) = links.first() {
            // All of them are in one folder.
            try_link(target, name)?;
        }
        let mut told = TensorProgress::new(self, progress);
        let mut sealed = Vec::new();
        for (shard, header) in shards.iter().zip(&headers) {
            sealed.push(self.fill(&shard.path, header, shard.tensors.iter().copied(), &mut told)?);
        }
        // A split model is unusable without its first file: the old one is removed before the
        // others change, and the new one comes last.
        let written = |path: &Path| {
            let path = path.to_owned();
            |source| QuantizeError::Write { path, source }
        };
        remove(&shards[0].path).map_err(written(&shards[0].path))?;
        for (target, name) in &links {
            remove(name).and_then(|()| owner::link(target, name)).map_err(written(name))?;
        }
        for (shard, sealed) in shards.iter().zip(sealed).rev() {
            sealed.publish().map_err(written(&shard.path))?;
        }
        let first = |(target, _): &&(PathBuf, PathBuf)| *target == shards[0].path;
        let path = links.iter().find(first).map_or(&shards[0].path, |(_, link)| link).clone();
        Ok(Written { path, files: shards.len(), size, seconds: started.elapsed().as_secs_f64() })
    }
}

/// Makes and removes a link beside `name`: a file system without links is an error before hours of writing.
fn try_link(target: &Path, name: &Path) -> Result<(), QuantizeError> {
    let trial = name.with_extension("gguf.link");
    let linked = remove(&trial).and_then(|()| owner::link(target, &trial)).and_then(|()| remove(&trial));
    linked.map_err(|source| QuantizeError::Write { path: name.to_owned(), source })
}

fn counted(shards: usize) -> Result<u16, QuantizeError> {
    u16::try_from(shards).map_err(|_| QuantizeError::TooManyShards(shards))
}

/// The name of a shard, in llama.cpp's form; `number` counts from 1.
fn shard_path(prefix: &Path, number: u16, count: u16) -> PathBuf {
    let mut path = OsString::from(prefix);
    path.push(format!("-{number:05}-of-{count:05}.gguf"));
    path.into()
}

fn is_same_folder(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(one).is_some_and(|one| Some(one) == real(other))
}

/// Removes a file, if there is one.
fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
