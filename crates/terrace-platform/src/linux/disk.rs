use crate::disk::Device;
use crate::input_file::{self, MAX_SETTINGS};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub fn device_of(path: &Path) -> io::Result<Device> {
    let dev = std::fs::metadata(path)?.dev();
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let (file_system, source) = mount(path, major, minor).unwrap_or_default();
    Ok(Device { major, minor, file_system, source })
}

pub fn disk_of(path: &Path) -> io::Result<u64> {
    let dev = std::fs::metadata(path)?.dev();
    let entry = format!("/sys/dev/block/{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    // The entry of a partition lies in its disk's.
    let is_partition = Path::new(&entry).join("partition").exists();
    let whole = is_partition.then(|| std::fs::canonicalize(entry).ok()?.parent()?.join("dev").into());
    let number = whole.flatten().and_then(|path: PathBuf| {
        let text = input_file::read_regular_text(&path, MAX_SETTINGS).ok()?;
        let (major, minor) = text.trim().split_once(':')?;
        Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
    });
    Ok(number.unwrap_or(dev))
}

/// Returns type and source of the mount that contains `path`: the last mount with the device's
/// number, or for file systems with their own numbers (btrfs) the innermost mount around the path.
fn mount(path: &Path, major: u32, minor: u32) -> Option<(String, String)> {
    let table = input_file::read_regular(Path::new("/proc/self/mountinfo"), 64 * MAX_SETTINGS).ok()?;
    let table = String::from_utf8_lossy(&table);
    let mounts: Vec<Mount<'_>> = table.lines().filter_map(Mount::of).collect();
    let number = format!("{major}:{minor}");
    let by_number = mounts.iter().rev().find(|mount| mount.number == number);
    let found = by_number.or_else(|| {
        let path = path.canonicalize().ok()?;
        let around = mounts.iter().filter(|mount| path.starts_with(&mount.point));
        around.max_by_key(|mount| mount.point.components().count())
    })?;
    Some((found.file_system.to_owned(), found.source.clone()))
}

/// A line of `/proc/self/mountinfo`.
#[derive(Debug, PartialEq, Eq)]
struct Mount<'a> {
    number: &'a str,
    point: PathBuf,
    file_system: &'a str,
    source: String,
}

impl<'a> Mount<'a> {
    /// Reads `ID PARENT MAJOR:MINOR ROOT POINT OPTIONS... - TYPE SOURCE OPTIONS`.
    fn of(line: &'a str) -> Option<Self> {
        let (place, what) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(2);
        let (number, _root, point) = (place.next()?, place.next()?, place.next()?);
        let mut what = what.split(' ');
        let (file_system, source) = (what.next()?, what.next()?);
        Some(Self { number, point: plain(point).into(), file_system, source: plain(source) })
    }
}

/// A field without the escapes that stand for what separates fields and lines.
fn plain(field: &str) -> String {
    let escapes = [(r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\043", "#"), (r"\134", r"\")];
    escapes.iter().fold(field.to_owned(), |text, (escape, plain)| text.replace(escape, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_mount_table_is_read() {
        let line =
            r"36 35 8:17 / /media/my\040disk rw,noatime shared:1 master:2 - ext4 /dev/a\134b rw,discard";
        let point = "/media/my disk".into();
        let mount = Mount { number: "8:17", point, file_system: "ext4", source: r"/dev/a\b".into() };
        assert_eq!(Mount::of(line), Some(mount));
        let short = "22 28 0:20 / /sys rw - sysfs none rw";
        assert_eq!(Mount::of(short).map(|mount| mount.source), Some("none".into()));
        assert_eq!(Mount::of("22 28 0:20 / /sys rw sysfs"), None);
    }
}
