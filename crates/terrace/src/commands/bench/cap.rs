//! A control group that limits the memory of a run, its page cache included.

use super::error::BenchError;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use terrace_model::ByteSize;

/// Names of the files of one version of control groups.
struct Layout {
    root: &'static str,
    /// The file that sets the limit.
    limit: &'static str,
    /// The file that disables swap by the value 0, if the kernel has it.
    no_swap: &'static str,
}

const V2: Layout = Layout { root: "/sys/fs/cgroup", limit: "memory.max", no_swap: "memory.swap.max" };
const V1: Layout =
    Layout { root: "/sys/fs/cgroup/memory", limit: "memory.limit_in_bytes", no_swap: "memory.swappiness" };

/// A control group for the runs; removed when dropped.
pub struct MemoryCap {
    group: PathBuf,
}

impl MemoryCap {
    /// Creates a group whose processes have at most `limit`.
    ///
    /// # Errors
    /// There are no control groups, or this process cannot create one.
    pub fn new(limit: ByteSize) -> Result<Self, BenchError> {
        let v1 = Path::new(V1.root).join("memory.limit_in_bytes").exists();
        let layout = if v1 { V1 } else { V2 };
        if !v1 && !Path::new(V2.root).join("cgroup.controllers").exists() {
            return Err(BenchError::NoControlGroup);
        }
        let failed = |path: PathBuf| {
            move |source: io::Error| BenchError::Prepare { what: "--memory-cap", path, source }
        };
        if !v1 {
            // Often enabled already. If it is neither enabled nor allowed, the limit's file is
            // missing below.
            let _ = write_existing(&Path::new(layout.root).join("cgroup.subtree_control"), "+memory");
        }
        let group = Path::new(layout.root).join(format!("terrace-bench-{}", std::process::id()));
        std::fs::create_dir(&group).map_err(failed(group.clone()))?;
        let cap = Self { group };
        let path = cap.group.join(layout.limit);
        // Opens the file without creating it: on this file system a missing file means a missing
        // feature.
        write_existing(&path, &limit.bytes().to_string()).map_err(failed(path))?;
        let path = cap.group.join(layout.no_swap);
        match write_existing(&path, "0") {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed(path)(e)),
            _ => Ok(cap),
        }
    }

    /// A command that enters the group and then executes `program`, so that all of the program is
    /// within the limit.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("/bin/sh");
        command
            .arg("-c")
            .arg(r#"echo $$ > "$0/cgroup.procs" || exit 125; exec "$@""#)
            .arg(&self.group)
            .arg(program);
        command
    }
}

impl Drop for MemoryCap {
    fn drop(&mut self) {
        // A group can be removed only after its last process was reaped, which may take a moment.
        for _ in 0..20 {
            if std::fs::remove_dir(&self.group).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        tracing::warn!("cannot remove the control group {}", self.group.display());
    }
}

#[expect(clippy::disallowed_methods, reason = "files of the kernel")]
fn write_existing(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write;
    std::fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}
