use super::call::{check, long, size};
use super::file::to_ask;
use crate::disk::Device;
use crate::file::State;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::windows::ffi::OsStringExt;
use std::os::windows::io::AsRawHandle;
use std::path::Path;
use windows_sys::Win32::Storage::FileSystem::{
    FILE_FLAG_BACKUP_SEMANTICS, GetVolumeInformationByHandleW, GetVolumeNameForVolumeMountPointW,
    GetVolumePathNameW,
};
use windows_sys::Win32::System::IO::DeviceIoControl;
use windows_sys::Win32::System::Ioctl::{IOCTL_STORAGE_GET_DEVICE_NUMBER, STORAGE_DEVICE_NUMBER};

/// Room for the name of a file system, or of a volume.
const ROOM: usize = 64;

pub fn device_of(path: &Path) -> io::Result<Device> {
    let file = to_ask(path, FILE_FLAG_BACKUP_SEMANTICS)?;
    let mut kind = [0u16; ROOM];
    let mut serial = 0;
    let none = std::ptr::null_mut();
    // SAFETY: an open file, and room for what is asked for.
    check(unsafe {
        GetVolumeInformationByHandleW(
            file.as_raw_handle(),
            none,
            0,
            &raw mut serial,
            none.cast(),
            none.cast(),
            kind.as_mut_ptr(),
            ROOM as u32,
        )
    })?;
    let source = volume(path).unwrap_or_default();
    Ok(Device { major: 0, minor: serial, file_system: until_zero(&kind), source })
}

/// The number of the physical disk; that of the volume where it has none, as shares and volumes over several
/// disks.
pub fn disk_of(path: &Path) -> io::Result<u64> {
    let volume_of = State::at(path)?.id.device;
    // Volumes' own numbers have 32 bits.
    let disk = volume(path).and_then(|name| disk(&name).ok()).map(|disk| 1 << 32 | u64::from(disk));
    Ok(disk.unwrap_or(volume_of))
}

/// The system's name of the volume that a path is on, such as `\\?\Volume{…}\`.
fn volume(path: &Path) -> Option<String> {
    let name = long(path).ok()?;
    let mut mount = vec![0u16; name.len() + ROOM];
    let mut volume = [0u16; ROOM];
    // SAFETY: names that end with zero, and room of these lengths.
    unsafe {
        check(GetVolumePathNameW(name.as_ptr(), mount.as_mut_ptr(), u32::try_from(mount.len()).ok()?))
            .ok()?;
        check(GetVolumeNameForVolumeMountPointW(mount.as_ptr(), volume.as_mut_ptr(), ROOM as u32)).ok()?;
    }
    Some(until_zero(&volume))
}

fn disk(volume: &str) -> io::Result<u32> {
    // With the separator at its end it would name the root folder.
    let device: File = to_ask(Path::new(volume.trim_end_matches('\\')), 0)?;
    let mut number = STORAGE_DEVICE_NUMBER::default();
    let (code, room) = (IOCTL_STORAGE_GET_DEVICE_NUMBER, size::<STORAGE_DEVICE_NUMBER>());
    let (none, mut len) = (std::ptr::null_mut(), 0);
    let place = (&raw mut number).cast();
    let handle = device.as_raw_handle();
    // SAFETY: an open device, and room of that size.
    check(unsafe { DeviceIoControl(handle, code, none, 0, place, room, &raw mut len, none.cast()) })?;
    Ok(number.DeviceNumber)
}

fn until_zero(text: &[u16]) -> String {
    let len = text.iter().position(|&unit| unit == 0).unwrap_or(text.len());
    OsString::from_wide(&text[..len]).to_string_lossy().into_owned()
}
