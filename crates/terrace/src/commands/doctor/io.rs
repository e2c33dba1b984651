//! Ways to read weights: io_uring, and the system's limits for a process.

use super::{Checks, Finding};
use std::path::Path;
use terrace_model::ByteSize;
use terrace_platform::input_file::{self, MAX_SETTINGS};
use terrace_platform::ring;

/// Enough for the files of a model in many shards and those of the program itself.
const MANY_FILES: u64 = 1024;
const LEAST_FILES: u64 = 32;
/// Below this limit little memory can be locked. Rings of current kernels do not count against it.
const LITTLE_LOCKED: u64 = 8 << 20;

pub struct Io {
    /// The reason if io_uring cannot be used. `None`: the system has none.
    io_uring: Option<Result<(), String>>,
    /// Bytes. `None`: no limit.
    locked: Option<u64>,
    files: Option<u64>,
}

impl Checks for Io {
    fn gather(_: &Path) -> Self {
        if !ring::EXIST {
            return Self { io_uring: None, locked: None, files: None };
        }
        let limits =
            input_file::read_regular_text(Path::new("/proc/self/limits"), MAX_SETTINGS).unwrap_or_default();
        Self {
            io_uring: Some(terrace_store::check_io_uring().map_err(|error| error.to_string())),
            locked: limit(&limits, "Max locked memory"),
            files: limit(&limits, "Max open files"),
        }
    }

    fn judge(&self) -> Vec<Finding> {
        let uring = match &self.io_uring {
            None => return vec![Finding::ok("io_uring", "not on this system: threads read")],
            Some(Ok(())) => Finding::ok("io_uring", "works"),
            Some(Err(reason)) => Finding::warn(
                "io_uring",
                reason.clone(),
                "set the sysctl kernel.io_uring_disabled=0, or let the container's seccomp profile allow it; \
                 until then, threads read with pread",
            ),
        };
        let locked = match self.locked {
            Some(bytes) if bytes < LITTLE_LOCKED => Finding::warn(
                "memlock",
                format!("{} may be locked", ByteSize(bytes)),
                "raise the limit (ulimit -l, LimitMEMLOCK=): old kernels count io_uring's memory, and slots cannot be locked",
            ),
            Some(bytes) => Finding::ok("memlock", format!("{} may be locked", ByteSize(bytes))),
            None => Finding::ok("memlock", "no limit"),
        };
        let files = match self.files {
            Some(count) if count < LEAST_FILES => {
                Finding::bad("open files", format!("at most {count}"), "raise the limit: ulimit -n 4096")
            }
            Some(count) if count < MANY_FILES => Finding::warn(
                "open files",
                format!("at most {count}"),
                "models in many shards need more: ulimit -n 4096",
            ),
            Some(count) => Finding::ok("open files", format!("at most {count}")),
            None => Finding::ok("open files", "no limit"),
        };
        vec![uring, locked, files]
    }
}

/// The soft limit in a line of `/proc/self/limits`. `None`: no limit.
fn limit(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::finding::{Level, levels};
    use super::*;

    #[test]
    fn limits_are_read_and_judged() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max open files            64                   1048576              files     \n\
                    Max locked memory         unlimited            unlimited            bytes     \n";
        assert_eq!((limit(text, "Max open files"), limit(text, "Max locked memory")), (Some(64), None));
        let judged = |io_uring: Result<(), String>, locked, files| {
            levels(&Io { io_uring: Some(io_uring), locked, files }.judge())
                .into_iter()
                .map(|(_, level)| level)
                .collect::<Vec<_>>()
        };
        assert_eq!(judged(Ok(()), None, Some(4096)), [Level::Ok, Level::Ok, Level::Ok]);
        assert_eq!(
            judged(Err("no".into()), Some(64 << 10), Some(64)),
            [Level::Warn, Level::Warn, Level::Warn]
        );
        assert_eq!(judged(Ok(()), Some(8 << 20), Some(8)), [Level::Ok, Level::Ok, Level::Bad]);
        let without = Io { io_uring: None, locked: None, files: None };
        assert_eq!(levels(&without.judge()), [("io_uring", Level::Ok)]);
    }
}
