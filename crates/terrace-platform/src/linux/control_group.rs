//! Memory limits and use of the control groups (v1 and v2) that this process is in.

use crate::input_file::{self, MAX_SETTINGS};
use std::path::{Path, PathBuf};

/// File names of one version of control groups.
#[derive(Clone, Copy, Debug)]
struct Version {
    root: &'static str,
    /// The kernel kills processes above the first limit, and makes them wait above the others.
    limits: &'static [&'static str],
    usage: &'static str,
    /// Fields of page cache that was used once, and of page cache that was used again.
    inactive_file: &'static str,
    active_file: &'static str,
    events: &'static str,
}

const V2: Version = Version {
    root: "/sys/fs/cgroup",
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    inactive_file: "inactive_file ",
    active_file: "active_file ",
    events: "memory.events",
};

const V1: Version = Version {
    root: "/sys/fs/cgroup/memory",
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    inactive_file: "total_inactive_file ",
    active_file: "total_active_file ",
    events: "memory.failcnt",
};

/// A control group that this process is in, or an ancestor of one. A limit on any of them applies.
#[derive(Clone, Debug)]
pub struct Group {
    dir: PathBuf,
    version: Version,
}

/// Memory counters of a group, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupMemory {
    limit: u64,
    used: u64,
    inactive_file: u64,
    active_file: u64,
}

impl GroupMemory {
    /// Returns how much can still be allocated if only page cache that was used once is evicted.
    pub fn room(&self) -> u64 {
        self.limit.saturating_sub(self.used.saturating_sub(self.inactive_file))
    }

    /// Returns how much can still be allocated if half of the page cache that was used again is
    /// evicted, too. The kernel evicts it when nothing else is left; without counting it, a process
    /// that reads files again and again would seem to have used up its limit.
    pub fn headroom(&self) -> u64 {
        let cache = self.inactive_file + self.active_file / 2;
        self.limit.saturating_sub(self.used.saturating_sub(cache))
    }
}

impl Group {
    /// Returns all groups that this process is in, with their ancestors.
    pub fn all() -> Vec<Self> {
        let text =
            input_file::read_regular_text(Path::new("/proc/self/cgroup"), MAX_SETTINGS).unwrap_or_default();
        of(&text)
            .into_iter()
            .map(|(version, path)| Self::at(version, Path::new(version.root), &path))
            .collect()
    }

    fn at(version: Version, root: &Path, path: &str) -> Self {
        Self { dir: root.join(path.trim_start_matches('/')), version }
    }

    fn number(&self, file: &str) -> Option<u64> {
        input_file::read_regular_text(&self.dir.join(file), MAX_SETTINGS).ok()?.trim().parse().ok()
    }

    /// Reads the group's counters; `None` if it has no limit.
    pub fn memory(&self) -> Option<GroupMemory> {
        // "max" does not parse, and v1's "no limit" is near 2^63.
        let limits = self.version.limits.iter().filter_map(|file| self.number(file));
        let limit = limits.filter(|&limit| limit < 1 << 60).min()?;
        let used = self.number(self.version.usage)?;
        let stat =
            input_file::read_regular_text(&self.dir.join("memory.stat"), MAX_SETTINGS).unwrap_or_default();
        let field = |name: &str| stat.lines().find_map(|l| l.strip_prefix(name)?.trim().parse().ok());
        Some(GroupMemory {
            limit,
            used,
            inactive_file: field(self.version.inactive_file).unwrap_or(0),
            active_file: field(self.version.active_file).unwrap_or(0),
        })
    }

    /// Returns the file that counts how often the group reached its limits. On v2 it can be polled.
    pub fn events(&self) -> PathBuf {
        self.dir.join(self.version.events)
    }

    /// Returns the path of the group's own pressure stall information, which not every kernel has.
    pub fn pressure(&self) -> PathBuf {
        self.dir.join("memory.pressure")
    }
}

/// Returns the room in bytes (see [`GroupMemory::room`]) of the tightest group; `None` without a limit.
pub fn tightest_room() -> Option<u64> {
    Group::all().iter().filter_map(|group| group.memory()).map(|memory| memory.room()).min()
}

/// Returns the lowest memory limit of the control groups that this process is in, in bytes; `None`
/// without one.
pub fn lowest_limit() -> Option<u64> {
    Group::all().iter().filter_map(|group| group.memory()).map(|memory| memory.limit).min()
}

/// Parses the text of `/proc/self/cgroup` into groups and their ancestors.
fn of(text: &str) -> Vec<(Version, String)> {
    let mut all = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let version = match controllers {
            "" => V2,
            controllers if controllers.split(',').any(|c| c == "memory") => V1,
            _ => continue,
        };
        let mut path = path.trim_end_matches('/');
        loop {
            all.push((version, path.to_owned()));
            match path.rsplit_once('/') {
                Some((parent, _)) => path = parent,
                None => break,
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn groups_and_their_ancestors_are_found() {
        let found = of("9:name=systemd:/x\n4:cpu,memory:/a/b\n1:cpu:/c\n0::/u.slice\n");
        let found: Vec<_> = found.iter().map(|(version, path)| (version.usage, path.as_str())).collect();
        let (v1, v2) = (V1.usage, V2.usage);
        assert_eq!(found, [(v1, "/a/b"), (v1, "/a"), (v1, ""), (v2, "/u.slice"), (v2, "")]);
    }

    #[test]
    fn the_tightest_limit_counts_and_cache_gives_way() {
        let dir = tempfile::tempdir().unwrap();
        let group = Group::at(V2, dir.path(), "/a");
        fs::create_dir(dir.path().join("a")).unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join("a").join(name), text).unwrap();
        write("memory.max", "max\n");
        write("memory.current", "700\n");
        assert_eq!(group.memory(), None, "no limit");
        write("memory.max", "1000\n");
        let memory = group.memory().unwrap();
        assert_eq!((memory.room(), memory.headroom()), (300, 300), "without statistics, nothing gives way");
        write("memory.high", "900\n");
        write("memory.stat", "anon 5\ninactive_file 100\nactive_file 50\n");
        let memory = group.memory().unwrap();
        assert_eq!((memory.room(), memory.headroom()), (300, 325));
        assert_eq!(group.events(), dir.path().join("a/memory.events"));
    }
}
