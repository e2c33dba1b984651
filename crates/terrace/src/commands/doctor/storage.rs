//! The place of the models: its file system, and direct I/O.

use super::{Checks, Finding};
use std::path::Path;
use terrace_model::ByteSize;
use terrace_platform::input_file;
use terrace_store::check_direct_io;
use terrace_store::kept::BlockDevice;

/// Network file systems.
const REMOTE: [&str; 8] = ["nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "fuse.sshfs", "glusterfs"];
/// File systems in memory.
const MEMORY: [&str; 2] = ["tmpfs", "ramfs"];

pub struct Storage {
    place: String,
    readable: Result<(), String>,
    device: Option<BlockDevice>,
    /// The alignment of direct I/O, or the reason if there is none.
    direct: Result<ByteSize, String>,
}

impl Checks for Storage {
    fn gather(place: &Path) -> Self {
        let readable = if place.is_dir() {
            std::fs::read_dir(place).map(|_| ())
        } else {
            input_file::open(place).map(|_| ())
        };
        Self {
            place: place.display().to_string(),
            readable: readable.map_err(|error| error.to_string()),
            device: BlockDevice::of(place).ok(),
            direct: check_direct_io(place).map_err(|error| error.to_string()),
        }
    }

    fn judge(&self) -> Vec<Finding> {
        let Self { place, .. } = self;
        if let Err(error) = &self.readable {
            return vec![Finding::bad(
                "storage",
                format!("{place}: {error}"),
                "make it readable for this user",
            )];
        }
        let kind = self.device.as_ref().map_or("", |device| device.file_system.as_str());
        let on = self.device.as_ref().map_or_else(|| "an unknown device".into(), ToString::to_string);
        let text = format!("{place} is on {on}");
        let storage = if REMOTE.contains(&kind) {
            Finding::warn(
                "storage",
                text,
                "weights stream at the network's speed; copy models to a local disk",
            )
        } else if MEMORY.contains(&kind) {
            Finding::warn("storage", text, "models there take up RAM; keep them on a disk")
        } else {
            Finding::ok("storage", text)
        };
        let direct = match &self.direct {
            Ok(align) => Finding::ok("direct I/O", format!("works, aligned to {align}")),
            Err(reason) => Finding::warn(
                "direct I/O",
                reason.clone(),
                "weights are read through the page cache; ext4, xfs and btrfs on a local disk support direct I/O",
            ),
        };
        vec![storage, direct]
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::{Level, levels};
    use super::*;

    #[test]
    fn places_are_judged_by_what_they_are_on() {
        let on = |kind: &str| Storage {
            place: "/models".into(),
            readable: Ok(()),
            device: Some(BlockDevice { major: 1, minor: 2, file_system: kind.into(), source: "x".into() }),
            direct: Ok(ByteSize(512)),
        };
        assert_eq!(levels(&on("ext4").judge()), [("storage", Level::Ok), ("direct I/O", Level::Ok)]);
        for kind in ["nfs4", "tmpfs"] {
            assert_eq!(levels(&on(kind).judge())[0].1, Level::Warn, "{kind}");
        }
        let buffered = Storage { direct: Err("no".into()), ..on("ext4") };
        assert_eq!(levels(&buffered.judge())[1], ("direct I/O", Level::Warn));
        let closed = Storage { readable: Err("denied".into()), ..on("ext4") };
        assert_eq!(levels(&closed.judge()), [("storage", Level::Bad)]);
    }
}
