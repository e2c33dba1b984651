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

pub fn permit_tiles() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        // Of asm/prctl.h and the kernel's document on x86 features that processes ask for.
        const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
        const XFEATURE_XTILE_DATA: libc::c_long = 18;
        // SAFETY: takes two numbers, and changes what registers the system keeps of this process.
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA) == 0 }
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}
