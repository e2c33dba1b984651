//! How weights are read.

use std::path::PathBuf;
use terrace_model::ByteSize;
use terrace_store::{DirectChoice, IoChoice};

/// How weights are read.
#[derive(Clone, Debug)]
pub struct IoOptions {
    /// I/O engine.
    pub engine: IoChoice,
    /// Whether reads bypass the page cache.
    pub direct: DirectChoice,
    /// Maximum number of requests in flight; `None` means the value measured for the device.
    pub queue_depth: Option<u32>,
    /// Maximum size of a request; `None` means the value measured for the device.
    pub request_size: Option<ByteSize>,
    /// Copies of the model's files on other disks, which are read together with them: files, or
    /// directories with some of the files under their own names. Rules out mappings of the files.
    pub replicas: Vec<PathBuf>,
    /// Whether everything that is read is compared with checksums of what the files held at first.
    /// Rules out mappings of the files.
    pub verify: bool,
}

impl Default for IoOptions {
    fn default() -> Self {
        Self {
            engine: IoChoice::Auto,
            direct: DirectChoice::Auto,
            queue_depth: None,
            request_size: None,
            replicas: Vec::new(),
            verify: false,
        }
    }
}
