//! How a store is set up.

use crate::choice::{DirectChoice, IoChoice};
use crate::clock::Clock;
use crate::io::FaultPlan;
use crate::kept::DeviceSettings;
use crate::policy::PolicyKind;
use terrace_model::ByteSize;

/// How a [`Store`](crate::Store) is set up.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Bytes of RAM for blocks and for staging, together. Beside it the store keeps only tables (under 250 bytes per
    /// block), 256 KiB of bounce buffer, and with `pread` the stacks of its threads.
    pub budget: ByteSize,
    /// Which engine reads.
    pub io: IoChoice,
    /// Whether around the page cache.
    pub direct: DirectChoice,
    /// Requests in flight at most (1 to 1024); `None`: as measured on the device, or 32.
    pub queue_depth: Option<u32>,
    /// Larger blocks are read in several requests of about this size (4 KiB to 1 GiB); `None`: as measured on the
    /// device, or 1 MiB.
    pub request_size: Option<ByteSize>,
    /// Where to look up what is not set here (and an engine and direct I/O left to us), and to keep what a probe of the
    /// device finds.
    pub device_settings: DeviceSettings,
    /// Which block goes when room is needed.
    pub policy: PolicyKind,
    /// Bytes of slots that guesses may have, as by [`set_speculation_cap`](crate::Store::set_speculation_cap); 0: no
    /// speculation.
    pub speculation: ByteSize,
    /// Errors and delays to inject, for tests.
    pub faults: Option<FaultPlan>,
    /// What is counted and recorded by; injected delays pass on it.
    pub clock: Clock,
    /// Ask for huge pages under the arena.
    pub huge_pages: bool,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            budget: ByteSize::gib(1),
            io: IoChoice::default(),
            direct: DirectChoice::default(),
            queue_depth: None,
            request_size: None,
            device_settings: DeviceSettings::default(),
            policy: PolicyKind::default(),
            speculation: ByteSize(0),
            faults: None,
            clock: Clock::default(),
            huge_pages: true,
        }
    }
}
