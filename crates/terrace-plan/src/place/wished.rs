//! Wishes for devices, resolved on a machine.

use crate::error::PlanError;
use crate::machine::{DeviceProfile, MachineProfile, device_room};
use crate::options::{Budget, ByDevice, DeviceOptions, HotSize, Manage};
use crate::wishes::Wishes;
use terrace_model::ByteSize;

/// A device's memory for copies of experts, as the user gave it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CopiesRoom {
    /// Name of the device.
    pub device: String,
    /// Requested bytes, and how many of these the device has; `None` means all that is left.
    pub bytes: Option<(ByteSize, ByteSize)>,
    /// Memory that layers leave free there, and the reserve of copies instead.
    pub more_free: Option<(ByteSize, ByteSize)>,
    /// The device's bandwidth, in bytes per second.
    pub speed: f64,
}

impl Wishes {
    /// Checks that the devices that are named exist and may be used.
    ///
    /// # Errors
    /// [`PlanError::NoDevice`] with those that do; [`PlanError::LeftOut`].
    pub(crate) fn check_devices(&self, machine: &MachineProfile) -> Result<(), PlanError> {
        let DeviceOptions { vram_budget, vram_reserve, .. } = &self.devices;
        // Where there is no accelerator at all, a choice among them is moot; the plan warns.
        let chosen = self.devices.usable().filter(|_| !machine.devices.is_empty());
        let names = chosen.unwrap_or_default().iter().map(String::as_str);
        let names = names.chain(self.hot.hot_cache.names()).chain(vram_budget.names());
        let mut names = names.chain(vram_reserve.names());
        let exists = |name: &str| machine.devices.iter().any(|device| device.name == name);
        match names.find(|name| !exists(name)) {
            None => {}
            Some(name) => return Err(PlanError::no_device(name, machine.devices.iter())),
        }
        let Some(usable) = self.devices.usable() else { return Ok(()) };
        let wants_copies = |name: &&str| self.hot.size_on(name) != HotSize::Off;
        let names = self.hot.hot_cache.names().filter(wants_copies).chain(vram_budget.names());
        let mut names = names.chain(vram_reserve.names());
        match names.find(|name| !usable.iter().any(|usable| usable == name)) {
            None => Ok(()),
            Some(name) => Err(PlanError::LeftOut { name: name.to_owned(), usable: usable.to_vec() }),
        }
    }

    /// Returns the machine with the devices that may be used.
    pub(crate) fn usable(&self, machine: &MachineProfile) -> MachineProfile {
        let mut machine = machine.clone();
        if let Some(names) = self.devices.usable() {
            machine.devices.retain(|device| names.contains(&device.name));
        }
        machine
    }

    /// Returns the machine as layers see it: without the memory that copies of experts take on
    /// devices, and with devices that hold slices combined into one.
    pub(crate) fn machine(&self, machine: &MachineProfile) -> MachineProfile {
        let mut machine = machine.clone();
        for device in machine.devices.iter_mut().filter(|device| device.is_holding()) {
            if let HotSize::Bytes(bytes) = self.hot.size_on(&device.name) {
                device.memory_free = device.memory_free.saturating_sub(bytes);
                if device.unified {
                    machine.memory.available = machine.memory.available.saturating_sub(bytes);
                }
            }
        }
        if self.devices.split() { machine.with_split_devices() } else { machine }
    }

    /// Returns the bytes of a device for weights and context.
    pub fn device_room(&self, name: &str, free: ByteSize) -> ByteSize {
        match self.devices.budget_on(name) {
            Budget::Bytes(bytes) => bytes.min(free),
            Budget::Auto => self.unreserved(name, free),
        }
    }

    /// Returns the memory of each device for copies of experts, if the user gave it.
    pub(crate) fn copies_room(&self, machine: &MachineProfile) -> Vec<CopiesRoom> {
        let room = |device: &DeviceProfile| {
            let bytes = match self.hot.size_on(&device.name) {
                HotSize::Auto | HotSize::Off => return None,
                HotSize::Max | HotSize::MaxBut(_) => None,
                // A budget is for layers and context; copies have their own.
                HotSize::Bytes(most) => {
                    Some((most, most.min(self.unreserved(&device.name, device.memory_free))))
                }
            };
            let name = device.name.clone();
            let more_free = match self.hot.size_on(&name) {
                HotSize::MaxBut(free) => {
                    let kept = device.memory_free.saturating_sub(self.device_room(&name, device.memory_free));
                    Some((kept, free))
                }
                _ => None,
            };
            Some(CopiesRoom { device: name, bytes, more_free, speed: device.bandwidth() })
        };
        machine.holding().filter_map(|(_, device)| room(device)).collect()
    }

    /// Returns the free memory of a device, less its reserve.
    pub fn unreserved(&self, name: &str, free: ByteSize) -> ByteSize {
        match self.devices.vram_reserve.on(name) {
            Some(reserve) => free.saturating_sub(reserve),
            None => device_room(free),
        }
    }

    /// Returns the free memory of a device that copies may take, if they may take all.
    pub fn left_for_copies(&self, name: &str, free: ByteSize) -> ByteSize {
        match self.hot.size_on(name) {
            HotSize::MaxBut(stays) => free.saturating_sub(stays),
            _ => self.unreserved(name, free),
        }
    }

    /// Returns whether a device may hold copies of a part of a layer's experts without being told
    /// how many.
    pub(crate) fn may_copy_on(&self, device: &str) -> bool {
        self.may_copy_experts() && self.hot.size_on(device) == HotSize::Auto
    }

    /// Returns whether devices may hold copies of a part of a layer's experts. They may not if
    /// their memory for copies is given, if a number of layers is, which means whole layers, or if
    /// devices hold slices of each matrix.
    pub(crate) fn may_copy_experts(&self) -> bool {
        self.hot.hot_cache.others().unwrap_or_default() == HotSize::Auto
            && !self.hot.is_given()
            && !matches!(self.memory.manage(), Manage::None | Manage::Mapped)
            && self.devices.n_gpu_layers.is_none()
            && !self.devices.split()
    }

    /// Returns whether experts of this layer are on no device except as copies.
    pub(crate) fn keeps_experts(&self, layer: u32) -> bool {
        layer < self.devices.host_experts() || self.hot.sizes().any(HotSize::is_max)
    }
}
