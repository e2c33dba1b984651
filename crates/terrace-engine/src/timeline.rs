//! The file of a run's timeline.

use crate::error::EngineError;
use crate::file_error::{FileError, FileRole};
use crate::options::Options;
use std::path::{Path, PathBuf};
use terrace_backend::Weights;
use terrace_lanes::Lanes;
use terrace_model::ByteSize;
use terrace_store::Store;
use terrace_store::part_file::PartFile;
use terrace_store::timeline::SPANS;

/// A timeline that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedTimeline {
    pub path: PathBuf,
    pub size: ByteSize,
    /// Number of spans in it.
    pub spans: usize,
    /// Number of spans left out because it was full.
    pub dropped: u64,
}

/// The output file of a run's timeline.
#[derive(Debug)]
pub struct TimelineFile(PartFile);

impl TimelineFile {
    /// Prepares to write `path`, which stays unchanged until the timeline is saved.
    ///
    /// # Errors
    /// [`EngineError::File`] if nothing can be written there.
    pub fn create(path: &Path) -> Result<Self, EngineError> {
        let failed = |source| FileError::unwritten(FileRole::Timeline, path.to_owned(), &source).into();
        PartFile::create(path, &terrace_store::timeline::FILE).map(Self).map_err(failed)
    }

    /// Opens the file, if the run's timeline is wanted.
    pub(crate) fn for_run(options: &Options) -> Result<Option<Self>, EngineError> {
        options.record.timeline.as_deref().map(Self::create).transpose()
    }

    /// Starts recording.
    pub(crate) fn start(weights: &Weights) {
        let (mut store, lanes, pieces) = (weights.store(), Lanes::of(weights), weights.pieces());
        store.record_timeline(SPANS);
        if let Some(lanes) = lanes.get() {
            lanes.name_tracks(&mut store);
        }
        pieces.name_tracks(&mut store);
    }

    /// Ends the recording and writes it in the format of Perfetto and Chrome; `None` if nothing was
    /// recorded.
    pub(crate) fn save(self, store: &mut Store) -> Result<Option<SavedTimeline>, EngineError> {
        let Some(timeline) = store.take_timeline() else { return Ok(None) };
        let path = self.0.path().to_owned();
        let mut spans = 0;
        let written = self.0.finish(|out| {
            spans = timeline.write_chrome(|block| store.spec(block), out)?;
            Ok(())
        });
        match written {
            Ok(size) => {
                Ok(Some(SavedTimeline { path, size: ByteSize(size), spans, dropped: timeline.dropped() }))
            }
            Err(source) => Err(FileError::unwritten(FileRole::Timeline, path, &source).into()),
        }
    }
}
