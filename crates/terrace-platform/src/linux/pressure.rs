//! Pressure stall information: how long tasks had to wait for memory.
//!
//! See the kernel's `Documentation/accounting/psi.rst`. With a trigger the kernel reports stalls as
//! they happen; where triggers are not allowed, the share of the last ten seconds is read instead.

use super::control_group::Group;
use super::wait::Waker;
use crate::file::Positioned;
use crate::input_file;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// "Some task waited for 15 % of a window", in microseconds. A healthy machine does not reach this,
/// and a machine that thrashes exceeds it by far. Without privileges, windows must be multiples of
/// two seconds.
const TRIGGERS: [&str; 2] = ["some 150000 1000000", "some 300000 2000000"];
/// The same threshold without a trigger: percent of the last ten seconds.
const SHARE: f64 = 15.0;

/// Flags by which files of the kernel are polled for news.
pub(super) const NEWS: PollFlags = PollFlags::PRI;

/// One `memory.pressure` file.
#[derive(Debug)]
pub struct Psi {
    file: File,
    trigger: bool,
    /// True if the trigger has fired since the last reading, as another poll has reported.
    woke: bool,
}

impl Psi {
    /// Opens the file, with a trigger if possible; `None` if the kernel does not have it.
    fn open(path: &Path) -> Option<Self> {
        let triggered = TRIGGERS.iter().find_map(|trigger| with_trigger(path, trigger).ok());
        match triggered {
            Some(file) => Some(Self { file, trigger: true, woke: false }),
            None => {
                let mut this = Self { file: input_file::open(path).ok()?.0, trigger: false, woke: false };
                this.share().map(|_| this)
            }
        }
    }

    /// Opens that of the machine; `None` if the kernel does not have it.
    pub fn of_machine() -> Option<Self> {
        Self::open(Path::new("/proc/pressure/memory"))
    }

    /// Opens that of a control group; `None` if the kernel does not have it.
    pub fn of_group(group: &Group) -> Option<Self> {
        Self::open(&group.pressure())
    }

    /// Returns whether a task had to wait for memory since the last call.
    pub fn is_pressed(&mut self) -> bool {
        if self.trigger { self.fired() } else { self.share().is_some_and(|share| share >= SHARE) }
    }

    /// Returns what reports when a task has to wait; `None` without a trigger.
    pub fn waker(&self) -> Option<Waker<'_>> {
        self.trigger.then(|| Waker(self.file.as_fd()))
    }

    /// Notes that the waker has reported, which it does only once.
    pub fn woke(&mut self) {
        self.woke = true;
    }

    /// Reads the percentage of the last ten seconds in which some task waited for memory.
    fn share(&mut self) -> Option<f64> {
        let mut buffer = [0; 256];
        let len = self.file.read_at(&mut buffer, 0).ok()?;
        some_avg10(std::str::from_utf8(&buffer[..len]).ok()?)
    }

    /// Returns whether the trigger has fired. The kernel reports it only once.
    fn fired(&mut self) -> bool {
        if std::mem::take(&mut self.woke) {
            return true;
        }
        let mut fds = [PollFd::new(&self.file, NEWS)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(NEWS)
    }
}

#[expect(clippy::disallowed_methods, reason = "a file of the kernel that a trigger is written to")]
fn with_trigger(path: &Path, trigger: &str) -> io::Result<File> {
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut file = OpenOptions::new().read(true).write(true).custom_flags(nonblock).open(path)?;
    // The kernel expects the terminating zero.
    file.write_all(format!("{trigger}\0").as_bytes())?;
    Ok(file)
}

fn some_avg10(text: &str) -> Option<f64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split_whitespace().find_map(|field| field.strip_prefix("avg10=")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_trigger_the_share_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memory.pressure");
        assert!(Psi::open(&path).is_none());
        let text = |share: &str| {
            format!(
                "some avg10={share} avg60=1.00 avg300=0.00 total=9\nfull avg10=99.00 avg60=0.00 avg300=0.00 total=1\n"
            )
        };
        std::fs::write(&path, text("3.05")).unwrap();
        let mut psi = Psi { file: File::open(&path).unwrap(), trigger: false, woke: false };
        assert_eq!(psi.share(), Some(3.05));
        assert!(!psi.is_pressed() && psi.waker().is_none());
        std::fs::write(&path, text("31.00")).unwrap();
        assert!(psi.is_pressed());
        std::fs::write(&path, "what else\n").unwrap();
        assert!(!psi.is_pressed());
    }

    #[test]
    fn this_kernels_file_can_be_read_if_it_is_there() {
        if let Some(mut psi) = Psi::of_machine() {
            psi.is_pressed();
            assert_eq!(psi.waker().is_some(), psi.trigger);
        }
    }
}
