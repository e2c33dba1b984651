//! A control group that limits the memory of other processes, their page cache included.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Why there is no such group.
#[derive(Debug)]
pub enum CapError {
    /// There are no control groups that limit memory, where they should be.
    NoControlGroup(PathBuf),
    /// The system has nothing that limits the page cache of processes.
    Unsupported,
    /// A file of them could not be made or written.
    File(PathBuf, io::Error),
}

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

/// A control group for other processes.
pub struct MemoryCap {
    group: PathBuf,
}

impl MemoryCap {
    /// Creates a group whose processes have at most `limit` bytes.
    ///
    /// # Errors
    /// There are no control groups, or this process cannot create one.
    pub fn new(limit: u64) -> Result<Self, CapError> {
        let v1 = Path::new(V1.root).join("memory.limit_in_bytes").exists();
        let layout = if v1 { V1 } else { V2 };
        if !v1 && !Path::new(V2.root).join("cgroup.controllers").exists() {
            return Err(CapError::NoControlGroup(V2.root.into()));
        }
        let failed = |path: PathBuf| move |source: io::Error| CapError::File(path, source);
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
        if let Err(error) = write_existing(&path, &limit.to_string()) {
            let _ = cap.remove();
            return Err(failed(path)(error));
        }
        let path = cap.group.join(layout.no_swap);
        match write_existing(&path, "0") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let _ = cap.remove();
                Err(failed(path)(error))
            }
            _ => Ok(cap),
        }
    }

    /// The group's folder.
    pub fn path(&self) -> &Path {
        &self.group
    }

    /// Removes the group, which no process may be in any more.
    ///
    /// # Errors
    /// The system's.
    pub fn remove(&self) -> io::Result<()> {
        let mut tries = 0..20;
        loop {
            // A group can be removed only after its last process was reaped, which may take a moment.
            match std::fs::remove_dir(&self.group) {
                Err(_) if tries.next().is_some() => std::thread::sleep(Duration::from_millis(10)),
                removed => return removed,
            }
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

#[expect(clippy::disallowed_methods, reason = "files of the kernel")]
fn write_existing(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write;
    std::fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}
