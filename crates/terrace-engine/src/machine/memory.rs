//! Memory: what this process may use, and what it has used.

use std::fs;
use terrace_model::ByteSize;

/// RAM that can still be taken: the kernel's estimate, or less if a control group allows less.
pub fn available_memory() -> ByteSize {
    let free = meminfo("MemAvailable:").unwrap_or(ByteSize(u64::MAX));
    cgroup_room().map_or(free, |room| free.min(room))
}

/// All of the machine's RAM, whatever of it this process may use; 0 where the system does not say.
pub fn total_memory() -> ByteSize {
    meminfo("MemTotal:").unwrap_or_default()
}

/// The most memory that this process has had resident.
pub fn peak_rss() -> ByteSize {
    fs::read_to_string("/proc/self/status").ok().and_then(|s| field(&s, "VmHWM:")).unwrap_or_default()
}

fn meminfo(key: &str) -> Option<ByteSize> {
    field(&fs::read_to_string("/proc/meminfo").ok()?, key)
}

/// `Key:   123 kB` → bytes.
fn field(text: &str, key: &str) -> Option<ByteSize> {
    super::kib(text.lines().find_map(|l| l.strip_prefix(key))?)
}

/// The tightest limit over the control groups that this process is in; `None` without one.
pub fn cgroup_memory_limit() -> Option<ByteSize> {
    cgroup_limits().into_iter().map(|(limit, _)| limit).min().map(ByteSize)
}

/// Limit minus use over the control groups that this process is in, the tightest one.
fn cgroup_room() -> Option<ByteSize> {
    cgroup_limits().into_iter().map(|(_, room)| room).min().map(ByteSize)
}

/// Limits, and what is left under them, of the control groups (v1 and v2) that this process is in.
fn cgroup_limits() -> Vec<(u64, u64)> {
    let mut limits = Vec::new();
    let Ok(groups) = fs::read_to_string("/proc/self/cgroup") else { return limits };
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let (root, limit, usage, reclaimable) = if controllers.is_empty() {
            ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file ")
        } else if controllers.split(',').any(|c| c == "memory") {
            (
                "/sys/fs/cgroup/memory",
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file ",
            )
        } else {
            continue;
        };
        // A limit on any ancestor binds as well.
        let mut path = path.trim_end_matches('/');
        loop {
            let number = |file: &str| -> Option<u64> {
                fs::read_to_string(format!("{root}{path}/{file}")).ok()?.trim().parse().ok()
            };
            // "max" does not parse, and v1's "no limit" is near 2^63.
            if let (Some(limit), Some(used)) = (number(limit).filter(|&l| l < 1 << 60), number(usage)) {
                let stat = fs::read_to_string(format!("{root}{path}/memory.stat")).unwrap_or_default();
                let cache =
                    stat.lines().find_map(|l| l.strip_prefix(reclaimable)?.trim().parse::<u64>().ok());
                let room = limit.saturating_sub(used.saturating_sub(cache.unwrap_or(0)));
                limits.push((limit, room));
            }
            match path.rsplit_once('/') {
                Some((parent, _)) => path = parent,
                None => break,
            }
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_uses_some() {
        assert!(available_memory() > ByteSize::mib(16));
        assert!(peak_rss() > ByteSize::kib(64));
        assert_eq!(field("a: 1 kB\nVmHWM:\t  12 kB\n", "VmHWM:"), Some(ByteSize(12288)));
    }
}
