//! Limits and counts of bytes copied to devices at a time.

use super::cache::Exchange;
use std::time::Duration;
use terrace_model::{ByteSize, SizeChoice};

/// Average time per token for copying experts to devices: a few percent of a streamed token's time.
const AUTO_TIME: Duration = Duration::from_millis(2);
/// Bytes that may be copied between two tokens, on average. `Auto`: what the device takes in 2 ms,
/// as measured. `Off`: nothing, so that the initial copies stay. Otherwise this many bytes; an
/// expert that is larger is copied at once.
pub type HotUpdate = SizeChoice;

/// State for copying experts to devices. Its buffers are allocated once.
pub struct Bringer {
    update: HotUpdate,
    /// True if nothing is exchanged for now.
    pub paused: bool,
    pub exchanges: Vec<Exchange>,
    pub staging: Vec<u8>,
    /// Bytes copied to lanes, and the time that took.
    pub bytes: u64,
    pub time: Duration,
    pub counts: Brought,
}

/// Totals of copies since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Brought {
    /// Experts copied into empty slots, and their bytes.
    pub filled: u64,
    pub filled_bytes: u64,
    /// Experts copied in place of others, and their bytes.
    pub exchanged: u64,
    pub exchanged_bytes: u64,
    /// Bytes, of both, that had to be read from disk.
    pub read: u64,
}

impl Bringer {
    pub fn new(update: HotUpdate, largest: ByteSize) -> Self {
        Self {
            update,
            paused: false,
            exchanges: Vec::with_capacity(64),
            staging: vec![0; usize::try_from(largest.bytes()).unwrap_or(0)],
            bytes: 0,
            time: Duration::ZERO,
            counts: Brought::default(),
        }
    }

    /// Seconds per byte of copies so far, if any were made.
    pub fn byte(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.time.as_secs_f64() / self.bytes as f64)
    }

    /// Bytes for the next token.
    pub fn grant(&self) -> ByteSize {
        match self.update {
            _ if self.paused => ByteSize::ZERO,
            HotUpdate::Off => ByteSize::ZERO,
            HotUpdate::Bytes(bytes) => bytes,
            // The first copy measures the rate.
            HotUpdate::Auto if self.bytes == 0 => ByteSize(self.staging.len() as u64),
            HotUpdate::Auto => {
                let rate = self.bytes as f64 / self.time.as_secs_f64().max(1e-9);
                ByteSize((rate * AUTO_TIME.as_secs_f64()) as u64)
            }
        }
    }
}
