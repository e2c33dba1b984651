//! The configuration of a store.

use crate::choice::{DirectChoice, IoChoice};
use crate::clock::Clock;
use crate::io::FaultPlan;
use crate::kept::DeviceSettings;
use crate::policy::PolicyKind;
use crate::replicas::Replica;
use terrace_model::{ByteSize, SizeChoice};

/// The configuration of a [`Store`](crate::Store).
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Bytes of RAM for blocks and staging together. In addition the store keeps only tables (under
    /// 250 bytes per block), 256 KiB of bounce buffer, and with `pread` the stacks of its threads.
    pub budget: ByteSize,
    /// Most bytes of rows that are kept in RAM, beside the budget; reads of rows stage in 512 KiB more.
    pub rows: ByteSize,
    /// Which engine reads.
    pub io: IoChoice,
    /// Choice of the page cache for reads.
    pub direct: DirectChoice,
    /// Most requests in flight (1 to 1024). `None` means as measured on the device, or 32.
    pub queue_depth: Option<u32>,
    /// Larger blocks are read in several requests of about this size (4 KiB to 1 GiB). `None` means
    /// as measured on the device, or 1 MiB.
    pub request_size: Option<ByteSize>,
    /// Source of the settings that are unset here, including the engine and direct I/O if they are
    /// `Auto`, and to keep what a probe of the device finds.
    pub device_settings: DeviceSettings,
    /// Copies of the files on other disks, which are read together with them. Each must have the
    /// bytes of its file, as by [`find_replicas`](crate::find_replicas); they are never written to.
    pub replicas: Vec<Replica>,
    /// The order of eviction.
    pub policy: PolicyKind,
    /// Most bytes of slots for guesses, as by
    /// [`set_speculation_cap`](crate::Store::set_speculation_cap); 0 means no guesses.
    pub speculation: ByteSize,
    /// Errors and delays to inject, for tests.
    pub faults: Option<FaultPlan>,
    /// The clock for counters and timelines; injected delays pass on it.
    pub clock: Clock,
    /// True if to request huge pages for the arena.
    pub huge_pages: bool,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            budget: ByteSize::gib(1),
            rows: LEAST_ROWS,
            io: IoChoice::default(),
            direct: DirectChoice::default(),
            queue_depth: None,
            request_size: None,
            device_settings: DeviceSettings::default(),
            replicas: Vec::new(),
            policy: PolicyKind::default(),
            speculation: ByteSize(0),
            faults: None,
            clock: Clock::default(),
            huge_pages: true,
        }
    }
}

/// Returns the bytes of rows to keep beside `slots`, and the slots that are left: a small part of these, if
/// they are large and need not be larger than `least`; otherwise a little more than them.
pub fn rows_and_slots(slots: ByteSize, least: ByteSize) -> (ByteSize, ByteSize) {
    let rows = ByteSize(slots.bytes() / ROWS_SHARE).min(MOST_ROWS).min(slots.saturating_sub(least));
    if rows < LEAST_ROWS { (LEAST_ROWS, slots) } else { (rows, slots.saturating_sub(rows)) }
}

/// Fewest bytes of rows that are kept, whatever the slots: those of a few hundred tokens.
const LEAST_ROWS: ByteSize = ByteSize::mib(1);
/// Most bytes of rows that are kept: a prompt's, with rows of 64 KiB.
const MOST_ROWS: ByteSize = ByteSize::mib(64);
/// Rows take one part in this many of the slots.
const ROWS_SHARE: u64 = 64;

/// Bytes that guesses may take of the `slots`: the measured optimum, nothing, or as many as asked for.
pub fn lookahead_bytes(choice: SizeChoice, slots: ByteSize) -> ByteSize {
    match choice {
        SizeChoice::Auto => AUTO_LOOKAHEAD.min(ByteSize(slots.bytes() / AUTO_SHARE)),
        SizeChoice::Off => ByteSize::ZERO,
        SizeChoice::Bytes(bytes) => bytes,
    }
}

/// Bytes that the disk reads while attention and the router compute, with some reserve: 3 ms at 2.5 GB/s.
/// Half as much leaves the disk idle, twice as much makes demand wait for wrong guesses
/// (`docs/benchmarks/decode.md`).
const AUTO_LOOKAHEAD: ByteSize = ByteSize::mib(8);
/// Guesses take at most one part in this many of the slots.
const AUTO_SHARE: u64 = 8;
