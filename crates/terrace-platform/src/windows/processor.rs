use super::call::check;
use std::time::Duration;
use windows_sys::Win32::Foundation::{FILETIME, HANDLE};
use windows_sys::Win32::System::SystemInformation::{
    CACHE_RELATIONSHIP, GetLogicalProcessorInformationEx, RelationCache,
    SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX,
};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, GetProcessTimes};

pub fn time() -> Duration {
    // SAFETY: a constant that means this process.
    time_of(unsafe { GetCurrentProcess() }).unwrap_or_default()
}

/// The processor time of a process that is open for questions.
pub fn time_of(process: HANDLE) -> Option<Duration> {
    let mut times = [FILETIME::default(); 4];
    let [made, ended, kernel, user] = &mut times;
    // SAFETY: a process, and room for four times.
    check(unsafe { GetProcessTimes(process, made, ended, kernel, user) }).ok()?;
    let ticks = |time: &FILETIME| u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime);
    Some(Duration::from_nanos(100 * (ticks(kernel) + ticks(user))))
}

#[cfg(target_arch = "x86_64")]
pub fn name() -> String {
    use std::arch::x86_64::__cpuid;
    const FIRST: u32 = 0x8000_0002;
    if __cpuid(0x8000_0000).eax < FIRST + 2 {
        return String::new();
    }
    let parts = (FIRST..FIRST + 3).flat_map(|leaf| {
        let part = __cpuid(leaf);
        [part.eax, part.ebx, part.ecx, part.edx]
    });
    let bytes: Vec<u8> = parts.flat_map(u32::to_le_bytes).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

#[cfg(not(target_arch = "x86_64"))]
pub fn name() -> String {
    String::new()
}

pub fn largest_cache() -> u64 {
    let mut len = 0;
    // SAFETY: without room, the call writes how much it takes.
    unsafe { GetLogicalProcessorInformationEx(RelationCache, std::ptr::null_mut(), &raw mut len) };
    // Words, because the entries are aligned to them.
    let mut room = vec![0u64; (len as usize).div_ceil(8)];
    let base = room.as_mut_ptr().cast::<u8>();
    // SAFETY: room of that length.
    if check(unsafe { GetLogicalProcessorInformationEx(RelationCache, base.cast(), &raw mut len) }).is_err() {
        return 0;
    }
    let (mut at, mut largest) = (0, 0);
    // An entry of a cache is shorter than the longest one.
    const ENTRY: usize = 8 + size_of::<CACHE_RELATIONSHIP>();
    while at + ENTRY <= len as usize {
        // SAFETY: the system wrote entries one after another, each with its length; those of this kind have a
        // cache in them.
        let (cache, size) = unsafe {
            let entry = base.add(at).cast::<SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX>();
            ((*entry).Anonymous.Cache.CacheSize, (*entry).Size)
        };
        largest = largest.max(u64::from(cache));
        at += (size as usize).max(1);
    }
    largest
}

/// Terrace's own kernels do without.
pub fn permit_tiles() -> bool {
    false
}
