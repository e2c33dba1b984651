//! How weights are read.

use terrace_model::ByteSize;
use terrace_store::{DirectChoice, IoChoice};

/// How weights are read.
#[derive(Clone, Copy, Debug)]
pub struct IoOptions {
    /// I/O engine.
    pub engine: IoChoice,
    /// Past the page cache or through it.
    pub direct: DirectChoice,
    /// Requests in flight at most; `None` means as measured on the device.
    pub queue_depth: Option<u32>,
    /// Size of a request at most; `None` means as measured on the device.
    pub request_size: Option<ByteSize>,
}

impl Default for IoOptions {
    fn default() -> Self {
        Self { engine: IoChoice::Auto, direct: DirectChoice::Auto, queue_depth: None, request_size: None }
    }
}
