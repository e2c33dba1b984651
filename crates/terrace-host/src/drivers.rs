//! Drivers of devices that are known to fail, by what ggml reports of a device.

/// A driver that fails.
#[derive(Debug)]
pub struct FaultyDriver {
    /// Its name and version.
    pub name: &'static str,
    /// The fault.
    pub fault: &'static str,
    /// The remedy.
    pub remedy: &'static str,
    /// True if a description is that of one of its devices.
    matches: fn(&str) -> bool,
}

/// All that are known. A driver takes the process along when it crashes, so nothing finds out about
/// them while Terrace runs.
const FAULTY: [FaultyDriver; 1] = [FaultyDriver {
    name: "llvmpipe with LLVM 15 or older",
    fault: "crashes in graphs of 32 tokens and more if it is that of Mesa 22",
    remedy: "set LP_NATIVE_VECTOR_WIDTH=128, or use a Mesa that is built with a newer LLVM",
    matches: old_llvmpipe,
}];

/// The fault of the driver of a device with this description, as ggml reports it.
pub fn faulty_driver(description: &str) -> Option<&'static FaultyDriver> {
    FAULTY.iter().find(|driver| (driver.matches)(description))
}

/// `llvmpipe (LLVM 15.0.6, 256 bits)`: Mesa 22 is built with LLVM 15 at most. ggml does not report the
/// version of Mesa, and newer ones may be built with LLVM 15 as well (Debian's backports are). With
/// vectors of 128 bits it does not crash.
fn old_llvmpipe(description: &str) -> bool {
    let Some((version, rest)) =
        description.strip_prefix("llvmpipe (LLVM ").and_then(|rest| rest.split_once('.'))
    else {
        return false;
    };
    version.parse::<u32>().is_ok_and(|major| major <= 15) && !rest.contains(", 128 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faulty_drivers_are_known_by_their_devices() {
        for faulty in ["llvmpipe (LLVM 15.0.6, 256 bits)", "llvmpipe (LLVM 14.0.0, 512 bits)"] {
            let driver = faulty_driver(faulty).unwrap();
            assert_eq!(driver.name, "llvmpipe with LLVM 15 or older", "{faulty}");
        }
        for fine in [
            "",
            "llvmpipe",
            "llvmpipe (LLVM 15.0.6, 128 bits)",
            "llvmpipe (LLVM 19.1.7, 256 bits)",
            "NVIDIA GeForce RTX 4090",
            "AMD Radeon Graphics (RADV RAPHAEL_MENDOCINO)",
        ] {
            assert!(faulty_driver(fine).is_none(), "{fine}");
        }
    }
}
