//! Graphics processors that the system sees, which is not asked here: ggml's own list has those that it can use.

/// Who makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    Nvidia,
    Amd,
    Intel,
}

impl Vendor {
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
    Vec::new()
}
