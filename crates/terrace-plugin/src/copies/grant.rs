//! Memory of devices that is taken before the program measures what is free.

use crate::host;
use terrace_ggml::devices::{DeviceHandle, Reserved, remote};
use terrace_host::separate_devices;
use terrace_model::ByteSize;
use terrace_plan::copies::DeviceRoom;
use terrace_plan::{ByDevice, HotSize, PerDevice, Wishes};

/// Memory of devices for the copies of one model.
pub struct Grant(Vec<Reserved>);

impl Grant {
    /// Takes what the user wants of each device, as far as it is free beside the planner's reserve. Also
    /// returns a line for each wish that is not met.
    pub fn take(wanted: &[PerDevice<HotSize>]) -> (Self, Vec<String>) {
        let (mut grant, mut problems) = (Self(Vec::new()), Vec::new());
        if let Some(name) = host::lacks_for_copies() {
            problems.push(format!("no expert copies: this program's ggml has no {name}"));
            return (grant, problems);
        }
        let devices = separate_devices();
        let known: Vec<String> = devices.iter().map(|device| device.name()).collect();
        for name in wanted.names().filter(|name| !known.iter().any(|known| known == name)) {
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            problems.push(format!(
                "no expert copies on {name}: there is no such device with memory of its own; there is {known}"
            ));
        }
        if devices.is_empty() && wanted.others().is_some_and(HotSize::is_given) {
            problems.push("no expert copies: no device has memory of its own".into());
        }
        for device in devices {
            match take(device, wanted.on(&device.name()).unwrap_or_default()) {
                Ok(None) => {}
                Ok(Some((reserved, less))) => {
                    problems.extend(less);
                    grant.0.push(reserved);
                }
                Err(problem) => problems.push(problem),
            }
        }
        (grant, problems)
    }

    /// The devices with what each has for copies.
    pub(super) fn rooms(&self) -> Vec<(DeviceHandle, DeviceRoom)> {
        let room = |reserved: &Reserved| {
            let device = reserved.device();
            (device, DeviceRoom { device: device.name(), bytes: reserved.bytes(), speed: 1.0 })
        };
        self.0.iter().map(room).collect()
    }

    /// Returns true if no device has memory for copies.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Takes memory of a device; also a line if it is less than wanted.
fn take(device: DeviceHandle, size: HotSize) -> Result<Option<(Reserved, Option<String>)>, String> {
    let name = device.name();
    let wanted = match size {
        HotSize::Auto | HotSize::Off => return Ok(None),
        HotSize::Max | HotSize::MaxBut(_) => {
            return Err(format!(
                "no expert copies on {name}: the program may use what is free there, so give their size (TERRACE_HOT_CACHE=SIZE)"
            ));
        }
        HotSize::Bytes(bytes) => bytes,
    };
    if device.is_remote() && !remote::may_be_shared() {
        return Err(format!(
            "no expert copies on {name}: this program's ggml may not use a server's connection from several threads"
        ));
    }
    let free = device.memory().0;
    let room = wanted.min(Wishes::default().unreserved(&name, free));
    let less = format!("{name} has {free} free: expert copies get {room} instead of {wanted}");
    if room == ByteSize::ZERO {
        return Err(less);
    }
    match Reserved::take(device, room) {
        Ok(reserved) => Ok(Some((reserved, (room < wanted).then_some(less)))),
        Err(error) => Err(format!("no expert copies: {error}")),
    }
}
