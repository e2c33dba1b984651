//! The files that a reload reads, through the store if there is one.

use super::error::ReloadError;
use super::find::Found;
use std::collections::HashMap;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::PathBuf;
use terrace_backend::Weights;
use terrace_model::{Extent, FileIndex};
use terrace_platform::file::Positioned;
use terrace_platform::input_file;
use terrace_store::ReadInto;

/// The files of one transaction, by path.
#[derive(Default)]
pub struct Files {
    opened: HashMap<PathBuf, Opened>,
}

enum Opened {
    /// The store's number for the file.
    Stored(FileIndex),
    /// The file itself, in runs without a store.
    Plain(File),
}

impl Files {
    /// Opens the file, unless it is already open.
    pub fn open(&mut self, weights: Option<&Weights>, found: &Found) -> Result<(), ReloadError> {
        if self.opened.contains_key(&found.path) {
            return Ok(());
        }
        let opened = match weights {
            Some(weights) => Opened::Stored(weights.store().add_file(found.path.clone())?),
            None => Opened::Plain(input_file::open(&found.path).map_err(|source| gone(found, source))?.0),
        };
        self.opened.insert(found.path.clone(), opened);
        Ok(())
    }

    /// The tensor's extent in the store's files.
    ///
    /// # Panics
    /// If the file is not open, or there is no store.
    pub fn extent(&self, found: &Found) -> Extent {
        match self.opened.get(&found.path) {
            Some(Opened::Stored(file)) => Extent { file: *file, ..found.info.extent },
            _ => panic!("streamed tensors are in the store's files"),
        }
    }

    /// Reads the tensor's bytes from `offset` on.
    pub fn read(
        &self,
        weights: Option<&Weights>,
        found: &Found,
        offset: u64,
        dst: &mut [u8],
    ) -> Result<(), ReloadError> {
        let from = found.info.extent.offset + offset;
        match (weights, &self.opened[&found.path]) {
            (Some(weights), Opened::Stored(_)) => {
                let extent = Extent { offset: from, len: dst.len() as u64, ..self.extent(found) };
                let mut reads = [ReadInto { extent, dst, name: &found.info.name }];
                weights.store().read_into(&mut reads, &mut |_| ControlFlow::Continue(()))?;
                Ok(())
            }
            (_, Opened::Plain(file)) => file.read_exact_at(dst, from).map_err(|source| gone(found, source)),
            (None, Opened::Stored(_)) => unreachable!("a store's file without a store"),
        }
    }

    /// The store's numbers for the files.
    pub fn indices(&self) -> impl Iterator<Item = FileIndex> {
        self.opened.values().filter_map(|opened| match opened {
            Opened::Stored(index) => Some(*index),
            Opened::Plain(_) => None,
        })
    }

    /// Closes all files, after which no tensor may come from them.
    pub fn close(&mut self, weights: Option<&Weights>) {
        for index in self.indices() {
            if let Some(Err(error)) = weights.map(|weights| weights.store().remove_file(index)) {
                tracing::warn!("cannot close an unused file: {error}");
            }
        }
        self.opened.clear();
    }
}

fn gone(found: &Found, source: std::io::Error) -> ReloadError {
    ReloadError::Gone { path: found.path.clone(), source }
}
