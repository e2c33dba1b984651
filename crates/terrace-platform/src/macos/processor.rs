use super::sysctl;
use rustix::time::{ClockId, clock_gettime};
use std::ffi::CStr;
use std::time::Duration;

pub fn time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

pub fn name() -> String {
    sysctl::text(c"machdep.cpu.brand_string").unwrap_or_default()
}

/// Apple's processors have a second level for each cluster as the last that the system tells of.
pub fn largest_cache() -> u64 {
    const CACHES: [&CStr; 3] = [c"hw.l3cachesize", c"hw.perflevel0.l2cachesize", c"hw.l2cachesize"];
    CACHES.into_iter().filter_map(sysctl::number).max().unwrap_or(0)
}

/// Macs with Intel's processors have none.
pub fn permit_tiles() -> bool {
    false
}
