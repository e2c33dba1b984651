//! Usable part of a memory.

use super::MachineProfile;
use terrace_model::ByteSize;

/// Returns the RAM that an automatic budget leaves free: 5 % of the available RAM, at least 512
/// MiB.
pub fn auto_reserve(available: ByteSize) -> ByteSize {
    ByteSize((available.bytes() / 20).max(ByteSize::mib(512).bytes()))
}

/// Returns the bytes of a device's free memory that may be used. As much as [`auto_reserve`] stays
/// free for the driver, but at most an eighth.
pub fn device_room(free: ByteSize) -> ByteSize {
    free.saturating_sub(auto_reserve(free).min(ByteSize(free.bytes() / 8)))
}

impl MachineProfile {
    /// Returns the RAM for weights and context: what is available, less the reserve.
    pub fn ram_room(&self) -> ByteSize {
        let available = self.memory.available;
        available.saturating_sub(auto_reserve(available))
    }
}
