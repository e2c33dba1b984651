//! Accelerators as ggml sees them.

use super::{Checks, Finding};
use std::path::Path;
use terrace_ggml::devices::devices;
use terrace_host::faulty_driver;
use terrace_model::ByteSize;

/// With a smaller share of its memory free, another program uses the device.
const LITTLE: f64 = 0.25;

pub struct Devices {
    all: Vec<Device>,
    /// Drivers of the system for devices that ggml may have been built without support for.
    system: Vec<&'static str>,
}

struct Device {
    name: String,
    description: String,
    driver: String,
    free: ByteSize,
    total: ByteSize,
}

impl Checks for Devices {
    fn gather(_: &Path) -> Self {
        let computing = devices().into_iter().filter(|d| d.is_accelerator());
        let all = computing.map(|device| {
            let (free, total) = device.memory();
            Device {
                name: device.name(),
                description: device.description(),
                driver: device.driver(),
                free,
                total,
            }
        });
        let there = |path: &str| Path::new(path).exists();
        let system = [("NVIDIA", "/proc/driver/nvidia/version"), ("AMD", "/dev/kfd")];
        Self {
            all: all.collect(),
            system: system.into_iter().filter(|(_, path)| there(path)).map(|(name, _)| name).collect(),
        }
    }

    fn judge(&self) -> Vec<Finding> {
        if self.all.is_empty() {
            return vec![match self.system.as_slice() {
                [] => Finding::ok("devices", "no accelerator; the CPU computes everything"),
                drivers => Finding::warn(
                    "devices",
                    format!(
                        "the system has a driver for {} devices, but this build cannot use them",
                        drivers.join(" and ")
                    ),
                    "build ggml with support for them",
                ),
            }];
        }
        let judge = |device: &Device| {
            let Device { name, description, driver, free, total } = device;
            let text = format!("{name} ({description}, {driver}): {free} of {total} free");
            if let Some(faulty) = faulty_driver(description) {
                let text = format!("{text}; {} {}", faulty.name, faulty.fault);
                return Finding::warn("devices", text, faulty.remedy);
            }
            if (free.bytes() as f64) < total.bytes() as f64 * LITTLE {
                Finding::warn("devices", text, "another program uses its memory")
            } else {
                Finding::ok("devices", text)
            }
        };
        self.all.iter().map(judge).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::{Level, levels};
    use super::*;

    #[test]
    fn drivers_that_crash_are_told() {
        let device = |description: &str| Device {
            name: "Vulkan0".into(),
            description: description.into(),
            driver: "Vulkan".into(),
            free: ByteSize::gib(4),
            total: ByteSize::gib(4),
        };
        let all =
            vec![device("llvmpipe (LLVM 15.0.6, 256 bits)"), device("llvmpipe (LLVM 19.1.7, 256 bits)")];
        let found = Devices { all, system: Vec::new() }.judge();
        assert_eq!(levels(&found), [("devices", Level::Warn), ("devices", Level::Ok)]);
        assert!(found[0].text.contains("Mesa 22 crashes in graphs of 32 tokens"), "{}", found[0].text);
        assert!(found[0].advice.as_ref().unwrap().contains("LP_NATIVE_VECTOR_WIDTH"));
    }

    #[test]
    fn devices_are_told_with_their_memory() {
        let device = |free| Device {
            name: "CUDA0".into(),
            description: "a card".into(),
            driver: "CUDA".into(),
            free: ByteSize::gib(free),
            total: ByteSize::gib(24),
        };
        let found = Devices { all: vec![device(23), device(2)], system: vec!["NVIDIA"] }.judge();
        assert_eq!(levels(&found), [("devices", Level::Ok), ("devices", Level::Warn)]);
        assert!(found[0].text.contains("23 GiB of 24 GiB"), "{}", found[0].text);
        let unused = Devices { all: Vec::new(), system: vec!["NVIDIA"] }.judge();
        assert_eq!(levels(&unused), [("devices", Level::Warn)]);
        assert_eq!(
            levels(&Devices { all: Vec::new(), system: Vec::new() }.judge()),
            [("devices", Level::Ok)]
        );
    }
}
