//! How much may be brought to devices at a time, and what was.

use super::cache::Exchange;
use std::time::Duration;
use terrace_model::{ByteSize, SizeChoice};

/// Time that bringing experts may take of a token, on average: a few percent of one that streams.
const AUTO_TIME: Duration = Duration::from_millis(2);
/// How much may be brought between two tokens: by itself what the device takes in 2 ms, as it was measured, on average; nothing,
/// so that what is there at the start stays; or a number of bytes on average, an expert that is larger at once.
pub type HotUpdate = SizeChoice;

/// What it takes to bring experts. Made once, for its memory.
pub struct Bringer {
    update: HotUpdate,
    pub exchanges: Vec<Exchange>,
    pub staging: Vec<u8>,
    /// Bytes that lanes were given, and how long that took.
    pub bytes: u64,
    pub time: Duration,
    pub counts: Brought,
}

/// What was brought since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Brought {
    /// Experts into empty slots, and their bytes.
    pub filled: u64,
    pub filled_bytes: u64,
    /// Experts in the places of others, and their bytes.
    pub exchanged: u64,
    pub exchanged_bytes: u64,
    /// Bytes of both that had to be read from disk.
    pub read: u64,
}

impl Bringer {
    pub fn new(update: HotUpdate, largest: ByteSize) -> Self {
        Self {
            update,
            exchanges: Vec::with_capacity(64),
            staging: vec![0; usize::try_from(largest.bytes()).unwrap_or(0)],
            bytes: 0,
            time: Duration::ZERO,
            counts: Brought::default(),
        }
    }

    /// Bytes for the next token.
    pub fn grant(&self) -> ByteSize {
        match self.update {
            HotUpdate::Off => ByteSize::ZERO,
            HotUpdate::Bytes(bytes) => bytes,
            // The first one is measured by bringing it.
            HotUpdate::Auto if self.bytes == 0 => ByteSize(self.staging.len() as u64),
            HotUpdate::Auto => {
                let rate = self.bytes as f64 / self.time.as_secs_f64().max(1e-9);
                ByteSize((rate * AUTO_TIME.as_secs_f64()) as u64)
            }
        }
    }
}
