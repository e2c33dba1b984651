use crate::input_file::{self, MAX_SETTINGS};
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::time::Duration;

pub fn time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

pub fn name() -> String {
    let text =
        input_file::read_regular_text(Path::new("/proc/cpuinfo"), 16 * MAX_SETTINGS).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("model name"));
    line.map(|rest| rest.trim_start_matches([' ', '\t', ':']).trim().to_owned()).unwrap_or_default()
}

pub fn largest_cache() -> u64 {
    let size = |index: u32| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let text = input_file::read_regular_text(Path::new(&path), MAX_SETTINGS).ok()?;
        let kib: u64 = text.trim().strip_suffix('K')?.parse().ok()?;
        Some(kib << 10)
    };
    (0..5).filter_map(size).max().unwrap_or(0)
}
