//! What to read a device with, as it was measured.

use crate::choice::IoChoice;
use serde::{Deserialize, Serialize};
use terrace_model::ByteSize;

/// What measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MeasuredBy {
    /// The benchmark ([`tools::iobench`](crate::tools::iobench)).
    Iobench,
    /// The short probe when a model was opened.
    Probe,
}

/// Settings that were measured on a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IoSettings {
    /// The faster engine, where both were measured; never `Auto`.
    pub engine: Option<IoChoice>,
    /// Whether direct I/O was (not far from) the faster, where both were measured.
    pub direct: Option<bool>,
    /// Bytes per request.
    pub request_size: ByteSize,
    /// Requests in flight.
    pub queue_depth: u32,
    /// 10^9 bytes per second that scattered reads reached with them.
    pub gbps: f64,
    /// Extents shorter than this were read clearly faster as one request with their neighbours; `None` if none were, or
    /// if it was not measured.
    pub coalesce_below: Option<ByteSize>,
    /// What measured.
    pub by: MeasuredBy,
}
