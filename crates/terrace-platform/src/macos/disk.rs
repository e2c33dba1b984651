use crate::disk::Device;
use std::ffi::{CStr, CString, c_char};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub fn device_of(path: &Path) -> io::Result<Device> {
    let dev = std::fs::metadata(path)?.dev();
    let mount = mount(path)?;
    Ok(Device {
        major: rustix::fs::major(device(dev)),
        minor: rustix::fs::minor(device(dev)),
        file_system: text(&mount.f_fstypename),
        source: text(&mount.f_mntfromname),
    })
}

/// Volumes of an APFS container are slices of one disk, and share what it gives: `/dev/disk3s1` and `/dev/disk3s5`.
pub fn disk_of(path: &Path) -> io::Result<u64> {
    let dev = std::fs::metadata(path)?.dev();
    Ok(disk_number(&text(&mount(path)?.f_mntfromname)).unwrap_or(dev))
}

/// The number of the disk that a slice is on. No device has such a number: the high bit is set.
fn disk_number(source: &str) -> Option<u64> {
    let rest = source.strip_prefix("/dev/disk")?;
    let digits = rest.split(|letter: char| !letter.is_ascii_digit()).next()?;
    Some(1 << 63 | digits.parse::<u64>().ok()?)
}

/// A device's number as the system's own type has it.
fn device(dev: u64) -> rustix::fs::Dev {
    dev as rustix::fs::Dev
}

/// The mount that contains `path`.
fn mount(path: &Path) -> io::Result<libc::statfs> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: zeros are a value of this plain structure, which the call fills; a C string.
    unsafe {
        let mut mount: libc::statfs = std::mem::zeroed();
        match libc::statfs(path.as_ptr(), &raw mut mount) {
            0 => Ok(mount),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn text(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field.iter().map(|&letter| letter.cast_unsigned()).collect();
    CStr::from_bytes_until_nul(&bytes).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_of_a_container_are_on_one_disk() {
        assert_eq!(disk_number("/dev/disk3s1"), disk_number("/dev/disk3s5s1"));
        assert_ne!(disk_number("/dev/disk3s1"), disk_number("/dev/disk31"));
        assert_eq!((disk_number("devfs"), disk_number("/dev/disk")), (None, None));
    }
}
