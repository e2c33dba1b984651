//! An engine that reads nothing, for replays, which count what would be read. Every request
//! completes at once, with as many bytes as the file would have had.

use super::engine::{Completion, IoEngine, Request};
use std::fs::File;
use std::io;
use std::sync::Arc;

pub(crate) const NAME: &str = "simulated";

/// An engine for files of which only the lengths are known.
pub(crate) struct Simulated {
    lengths: Vec<u64>,
    over: Vec<Completion>,
}

impl Simulated {
    pub fn new(lengths: Vec<u64>) -> Self {
        Self { lengths, over: Vec::new() }
    }
}

impl IoEngine for Simulated {
    fn name(&self) -> &'static str {
        NAME
    }

    fn push(&mut self, request: Request) -> io::Result<()> {
        let left = self.lengths[request.file as usize].saturating_sub(request.offset);
        let bytes = left.min(request.target.len as u64);
        let result = i32::try_from(bytes).expect("requests have at most 1 GiB");
        self.over.push(Completion { tag: request.tag, result });
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn set_files(&mut self, _files: Arc<[File]>) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "there are no files in a replay"))
    }

    fn reap(&mut self, _wait: bool, out: &mut Vec<Completion>) -> io::Result<()> {
        out.append(&mut self.over);
        Ok(())
    }
}
