//! Accelerators: those that ggml can use, those that the system has, and what to do about the
//! difference.

use super::{Checks, Finding};
use crate::backends;
use std::path::Path;
use terrace_cli::advice;
use terrace_ggml::devices::devices;
use terrace_ggml::devices::libraries::LibraryError;
use terrace_host::{Graphics, Vendor, faulty_driver, graphics};
use terrace_model::ByteSize;

/// With a smaller share of its memory free, another program uses the device.
const LITTLE: f64 = 0.25;

pub struct Devices {
    all: Vec<Device>,
    /// Results for backends' libraries.
    libraries: Vec<Library>,
    /// Graphics processors of this machine, whether ggml has them or not.
    system: Vec<Graphics>,
    tools: Tools,
}

struct Device {
    name: String,
    description: String,
    driver: String,
    bus_id: Option<String>,
    free: ByteSize,
    total: ByteSize,
}

/// A library, and the devices that it brought, or why it was refused.
struct Library {
    path: String,
    loaded: Result<String, LibraryError>,
}

/// Tools to build a backend with, and to run it.
#[derive(Clone, Copy, Default)]
struct Tools {
    /// NVIDIA's kernel driver, or Windows' below this Linux.
    nvidia: bool,
    /// The kernel's interface for computing on AMD's processors, and the libraries that use it.
    rocm: bool,
    /// NVIDIA's compiler.
    nvcc: bool,
}

impl Tools {
    fn here() -> Self {
        let there = |paths: &[&str]| paths.iter().any(|path| Path::new(path).exists());
        let in_path = |name: &str| {
            let path = terrace_cli::environment::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|folder| folder.join(name).exists())
        };
        Self {
            nvidia: there(&["/proc/driver/nvidia/version", "/dev/nvidia0", "/dev/dxg"]),
            rocm: there(&["/dev/kfd"]) && (there(&["/opt/rocm/lib"]) || in_path("hipcc")),
            nvcc: there(&["/usr/local/cuda/bin/nvcc"]) || in_path("nvcc"),
        }
    }

    /// The backend for processors of this vendor, with what else it takes.
    fn backend(self, vendor: Vendor) -> (&'static str, &'static str) {
        match vendor {
            Vendor::Nvidia if self.nvcc => ("cuda", ""),
            Vendor::Nvidia => ("cuda", " (with the CUDA toolkit), or GPU=vulkan"),
            Vendor::Amd if self.rocm => ("rocm", ", or GPU=vulkan"),
            Vendor::Amd => ("vulkan", ", or GPU=rocm with ROCm"),
            Vendor::Intel => ("vulkan", ""),
        }
    }
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
                bus_id: if device.is_remote() { None } else { device.bus_id() },
                free,
                total,
            }
        });
        let library = |library: &backends::Library| Library {
            path: library.path.display().to_string(),
            loaded: match &library.loaded {
                Ok(backend) => {
                    let names: Vec<String> = backend.devices.iter().map(|device| device.name()).collect();
                    let names = if names.is_empty() { "no devices".into() } else { names.join(", ") };
                    Ok(format!("{} of ggml {}: {names}", backend.name, backend.version))
                }
                Err(error) => Err(error.clone()),
            },
        };
        Self {
            all: all.collect(),
            libraries: backends::libraries().iter().map(library).collect(),
            system: graphics(),
            tools: Tools::here(),
        }
    }

    fn judge(&self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = self.libraries.iter().map(Library::judge).collect();
        findings.extend(self.all.iter().map(Device::judge));
        let unused = self.system.iter().filter(|graphics| !self.has(graphics));
        findings.extend(unused.map(|graphics| self.unused(graphics)));
        if findings.is_empty() {
            findings.push(Finding::ok("devices", "no accelerator; the CPU computes everything"));
        }
        findings
    }
}

impl Library {
    fn judge(&self) -> Finding {
        match &self.loaded {
            Ok(what) => Finding::ok("backends", format!("{} is loaded: {what}", self.path)),
            Err(error @ LibraryError::Known { .. }) => Finding::ok("backends", error.to_string()),
            Err(error) => match advice::on_library(error) {
                Some(advice) => Finding::warn("backends", error.to_string(), advice),
                None => Finding { advice: None, ..Finding::warn("backends", error.to_string(), "") },
            },
        }
    }
}

impl Device {
    fn judge(&self) -> Finding {
        let Self { name, description, driver, free, total, .. } = self;
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
    }
}

impl Devices {
    /// Returns true if one of ggml's devices is this processor. A driver may not say where its device is:
    /// then its maker's name is looked for, which drivers put into descriptions.
    fn has(&self, graphics: &Graphics) -> bool {
        self.all.iter().any(|device| match &device.bus_id {
            Some(id) => id.eq_ignore_ascii_case(&graphics.slot),
            None => device.description.contains(graphics.vendor.name()),
        })
    }

    /// A processor that this program does not use, and how it would.
    fn unused(&self, graphics: &Graphics) -> Finding {
        let Graphics { vendor, slot, id, driven } = graphics;
        let text = format!("{} GPU at {slot} ({id})", vendor.name());
        if *vendor == Vendor::Nvidia && !self.tools.nvidia {
            return Finding::warn("devices", format!("{text} has no driver"), "install NVIDIA's driver");
        }
        if !driven {
            return Finding::warn(
                "devices",
                format!("{text} has no driver"),
                "load the kernel's driver for it",
            );
        }
        let (backend, otherwise) = self.tools.backend(*vendor);
        Finding::warn(
            "devices",
            format!("{text} is not used by this program"),
            format!(
                "`make build GPU={backend}`{otherwise}; or `make backend GPU={backend}` for a library beside \
                 this program"
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::{Level, levels};
    use super::*;

    fn device(description: &str, bus_id: Option<&str>, free: u64) -> Device {
        Device {
            name: "GPU0".into(),
            description: description.into(),
            driver: "a backend".into(),
            bus_id: bus_id.map(str::to_owned),
            free: ByteSize::gib(free),
            total: ByteSize::gib(24),
        }
    }

    fn graphics(vendor: Vendor, driven: bool) -> Graphics {
        Graphics { vendor, slot: "0000:01:00.0".into(), id: "10de:2684".into(), driven }
    }

    fn judged(all: Vec<Device>, system: Vec<Graphics>, tools: Tools) -> Vec<Finding> {
        Devices { all, libraries: Vec::new(), system, tools }.judge()
    }

    #[test]
    fn drivers_that_crash_are_told() {
        let all = vec![
            device("llvmpipe (LLVM 15.0.6, 256 bits)", None, 24),
            device("llvmpipe (LLVM 19.1.7, 256 bits)", None, 24),
        ];
        let found = judged(all, Vec::new(), Tools::default());
        assert_eq!(levels(&found), [("devices", Level::Warn), ("devices", Level::Ok)]);
        assert!(
            found[0].text.contains("crashes in graphs of 32 tokens and more if it is that of Mesa 22"),
            "{}",
            found[0].text
        );
        assert!(found[0].advice.as_ref().unwrap().contains("LP_NATIVE_VECTOR_WIDTH"));
    }

    #[test]
    fn devices_are_told_with_their_memory() {
        let slot = Some("0000:01:00.0");
        let all = vec![device("a card", slot, 23), device("a card", slot, 2)];
        let found = judged(all, vec![graphics(Vendor::Nvidia, true)], Tools::default());
        assert_eq!(levels(&found), [("devices", Level::Ok), ("devices", Level::Warn)]);
        assert!(found[0].text.contains("23 GiB of 24 GiB"), "{}", found[0].text);
        let found = judged(Vec::new(), Vec::new(), Tools::default());
        assert_eq!(levels(&found), [("devices", Level::Ok)]);
    }

    #[test]
    fn processors_without_a_backend_come_with_the_command_that_builds_one() {
        let advice = |vendor, tools| {
            let found = judged(Vec::new(), vec![graphics(vendor, true)], tools);
            assert_eq!(levels(&found), [("devices", Level::Warn)]);
            found[0].advice.clone().unwrap()
        };
        let nvidia = Tools { nvidia: true, ..Tools::default() };
        let with_nvcc = Tools { nvcc: true, ..nvidia };
        let with_rocm = Tools { rocm: true, ..Tools::default() };
        for (vendor, tools, start) in [
            (Vendor::Nvidia, nvidia, "`make build GPU=cuda` (with the CUDA toolkit), or GPU=vulkan;"),
            (Vendor::Nvidia, with_nvcc, "`make build GPU=cuda`;"),
            (Vendor::Nvidia, Tools::default(), "install NVIDIA's driver"),
            (Vendor::Amd, Tools::default(), "`make build GPU=vulkan`, or GPU=rocm with ROCm;"),
            (Vendor::Amd, with_rocm, "`make build GPU=rocm`, or GPU=vulkan;"),
            (Vendor::Intel, Tools::default(), "`make build GPU=vulkan`;"),
        ] {
            let advice = advice(vendor, tools);
            assert!(advice.starts_with(start), "{advice}");
        }
        let found = judged(Vec::new(), vec![graphics(Vendor::Intel, false)], Tools::default());
        assert!(found[0].text.contains("has no driver"), "{}", found[0].text);
        // Its neighbour is used.
        let other = vec![device("a card", Some("0000:02:00.0"), 23)];
        let found = judged(other, vec![graphics(Vendor::Intel, true)], Tools::default());
        assert_eq!(levels(&found), [("devices", Level::Ok), ("devices", Level::Warn)]);
    }

    #[test]
    fn libraries_are_told() {
        let refused = LibraryError::Version {
            path: "/lib/libggml-cuda.so".into(),
            theirs: "0.25.3 (commit abc)".into(),
            ours: "0.26.0".into(),
        };
        let libraries = [Ok("Vulkan of ggml 0.26.0: Vulkan0".to_owned()), Err(refused)]
            .map(|loaded| Library { path: "/lib/libggml-vulkan.so".into(), loaded });
        let devices = Devices {
            all: Vec::new(),
            libraries: libraries.into(),
            system: Vec::new(),
            tools: Tools::default(),
        };
        let found = devices.judge();
        assert_eq!(levels(&found), [("backends", Level::Ok), ("backends", Level::Warn)]);
        assert!(found[0].text.ends_with("is loaded: Vulkan of ggml 0.26.0: Vulkan0"), "{}", found[0].text);
        assert!(found[1].text.contains("0.25.3") && found[1].text.contains("0.26.0"), "{}", found[1].text);
    }
}
