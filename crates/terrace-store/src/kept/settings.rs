//! Measured settings for reading from a device.

use crate::choice::IoChoice;
use serde::{Deserialize, Serialize};
use terrace_model::ByteSize;

/// The origin of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MeasuredBy {
    /// The benchmark ([`tools::iobench`](crate::tools::iobench)).
    Iobench,
    /// The short probe at the opening of a model.
    Probe,
}

/// Settings that were measured on a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IoSettings {
    /// The faster engine, if both were measured; never `Auto`.
    pub engine: Option<IoChoice>,
    /// True if direct I/O was faster, or nearly as fast, if both were measured.
    pub direct: Option<bool>,
    /// Bytes per request.
    pub request_size: ByteSize,
    /// Number of requests in flight.
    pub queue_depth: u32,
    /// Rate of scattered reads with these settings, in 10^9 bytes per second.
    pub gbps: f64,
    /// Extents shorter than this were read clearly faster as one request with adjacent ones. `None`
    /// if none were, or if that was not measured.
    pub coalesce_below: Option<ByteSize>,
    /// The origin of the measurement.
    pub by: MeasuredBy,
}
