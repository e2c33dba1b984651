use crate::disk::Device;
use crate::file::State;
use std::io;
use std::path::Path;

pub fn device_of(path: &Path) -> io::Result<Device> {
    std::fs::metadata(path).map(|_| Device::default())
}

pub fn disk_of(path: &Path) -> io::Result<u64> {
    State::at(path).map(|state| state.id.device)
}
