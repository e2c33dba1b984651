//! Graphics processors that the system sees, whether ggml can use them or not.

use crate::input_file::{self, MAX_SETTINGS};
use std::path::Path;

/// Who makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    Nvidia,
    Amd,
    Intel,
}

impl Vendor {
    /// Those of which ggml can use processors; a screen's adapter of another vendor computes nothing.
    fn of(id: u16) -> Option<Self> {
        match id {
            0x10de => Some(Self::Nvidia),
            0x1002 => Some(Self::Amd),
            0x8086 => Some(Self::Intel),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Nvidia => "NVIDIA",
            Self::Amd => "AMD",
            Self::Intel => "Intel",
        }
    }
}

/// A graphics processor on the PCI bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graphics {
    /// Who makes it.
    pub vendor: Vendor,
    /// Its place on the bus, such as `0000:01:00.0`.
    pub slot: String,
    /// Vendor and device, such as `10de:2684`.
    pub id: String,
    /// True if a driver of the system has it.
    pub driven: bool,
}

/// The system's graphics processors, in the order of the bus; none where it is not asked.
pub fn graphics() -> Vec<Graphics> {
    graphics_in(Path::new("/sys/bus/pci/devices"))
}

fn graphics_in(devices: &Path) -> Vec<Graphics> {
    let Ok(entries) = std::fs::read_dir(devices) else { return Vec::new() };
    let mut all: Vec<Graphics> = entries.flatten().filter_map(|entry| described(&entry.path())).collect();
    all.sort_by(|a, b| a.slot.cmp(&b.slot));
    all
}

/// The processor in this folder of sysfs; `None` means that it is another kind of device.
fn described(folder: &Path) -> Option<Graphics> {
    let number = |name: &str| {
        let text = input_file::read_regular_text(&folder.join(name), MAX_SETTINGS).ok()?;
        u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
    };
    // Display controllers, and accelerators for computing.
    if !matches!(number("class")? >> 16, 0x03 | 0x12) {
        return None;
    }
    let (vendor, device) = (u16::try_from(number("vendor")?).ok()?, number("device")?);
    Some(Graphics {
        vendor: Vendor::of(vendor)?,
        slot: folder.file_name()?.to_str()?.to_owned(),
        id: format!("{vendor:04x}:{device:04x}"),
        driven: folder.join("driver").exists(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_found_among_other_devices() {
        let bus = tempfile::TempDir::new().unwrap();
        for (slot, class, vendor, device, driven) in [
            ("0000:01:00.0", "0x030000", "0x10de", "0x2684", true),
            ("0000:00:02.0", "0x030000", "0x8086", "0x4680", false),
            // Its sound, a server's screen, a network card.
            ("0000:01:00.1", "0x040300", "0x10de", "0x22ba", true),
            ("0000:02:00.0", "0x030000", "0x1a03", "0x2000", true),
            ("0000:03:00.0", "0x020000", "0x8086", "0x1533", true),
            // An accelerator without a screen.
            ("0000:04:00.0", "0x120000", "0x1002", "0x74a1", true),
        ] {
            let folder = bus.path().join(slot);
            std::fs::create_dir(&folder).unwrap();
            for (name, text) in [("class", class), ("vendor", vendor), ("device", device)] {
                std::fs::write(folder.join(name), format!("{text}\n")).unwrap();
            }
            if driven {
                std::fs::create_dir(folder.join("driver")).unwrap();
            }
        }
        let found = graphics_in(bus.path());
        let told: Vec<_> =
            found.iter().map(|g| (g.vendor, g.slot.as_str(), g.id.as_str(), g.driven)).collect();
        assert_eq!(
            told,
            [
                (Vendor::Intel, "0000:00:02.0", "8086:4680", false),
                (Vendor::Nvidia, "0000:01:00.0", "10de:2684", true),
                (Vendor::Amd, "0000:04:00.0", "1002:74a1", true),
            ]
        );
        assert_eq!(graphics_in(&bus.path().join("none")), []);
    }
}
