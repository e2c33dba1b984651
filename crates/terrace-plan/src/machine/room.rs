//! What of a memory may be used.

use super::MachineProfile;
use terrace_model::ByteSize;

/// RAM that an automatic budget leaves alone: 5 % of what is available, at least 512 MiB.
pub fn auto_reserve(available: ByteSize) -> ByteSize {
    ByteSize((available.bytes() / 20).max(ByteSize::mib(512).bytes()))
}

/// Bytes of a device's free memory that may be used: its driver's own needs stay free, as much as of RAM, but of a small
/// one an eighth is enough.
pub fn device_room(free: ByteSize) -> ByteSize {
    free.saturating_sub(auto_reserve(free).min(ByteSize(free.bytes() / 8)))
}

impl MachineProfile {
    /// RAM for weights and context: what is available, less the reserve. A unified device cannot use all of the memory.
    pub fn ram_room(&self) -> ByteSize {
        let available = self.memory.available;
        let room = available.saturating_sub(auto_reserve(available));
        self.unified().map_or(room, |device| room.min(device.memory_free))
    }
}
