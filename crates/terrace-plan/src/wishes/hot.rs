//! Wishes for copies of experts on devices.

use std::fmt;
use std::str::FromStr;
use terrace_model::{ByteSize, ParseByteSizeError};

/// Memory of a device for copies of experts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HotSize {
    /// The planner chooses.
    #[default]
    Auto,
    /// None: the device holds no copies.
    Off,
    /// All that is free after the context and the dense weights of layers, less the reserve.
    /// Experts are then on devices as copies only.
    Max,
    /// This many bytes, which layers then cannot use.
    Bytes(ByteSize),
}

impl HotSize {
    /// Returns whether the user gave the size, instead of leaving it to the planner.
    pub const fn is_given(self) -> bool {
        matches!(self, Self::Max | Self::Bytes(_))
    }
}

impl ByDevice<HotSize> {
    /// Returns whether the user gave a size for any device.
    pub fn is_given(&self) -> bool {
        self.values().any(HotSize::is_given)
    }
}

/// Text that is not a [`HotSize`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}, or `max`, `off` or `auto`")]
pub struct ParseHotSizeError(#[from] ParseByteSizeError);

impl FromStr for HotSize {
    type Err = ParseHotSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "auto" => Self::Auto,
            "off" => Self::Off,
            "max" => Self::Max,
            size => Self::Bytes(size.parse()?),
        })
    }
}

impl fmt::Display for HotSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Off => f.pad("off"),
            Self::Max => f.pad("max"),
            Self::Bytes(bytes) => bytes.fmt(f),
        }
    }
}

/// A value for one device (`DEVICE=VALUE`), or for all that are not named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerDevice<T> {
    /// ggml's name of the device; `None` means all others.
    pub device: Option<String>,
    /// The value.
    pub value: T,
}

impl<T> PerDevice<T> {
    /// Makes a list with one value for all devices.
    pub fn all(value: T) -> Vec<Self> {
        vec![Self { device: None, value }]
    }

    /// Makes a value for one device.
    pub fn on(device: &str, value: T) -> Self {
        Self { device: Some(device.to_owned()), value }
    }
}

impl<T: FromStr> FromStr for PerDevice<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (device, value) = match text.split_once('=') {
            Some((device, value)) => (Some(device.to_owned()), value),
            None => (None, text),
        };
        Ok(Self { device, value: value.parse()? })
    }
}

impl<T: fmt::Display> fmt::Display for PerDevice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.device {
            Some(device) => write!(f, "{device}={}", self.value),
            None => self.value.fmt(f),
        }
    }
}

/// Values by device, the last one given for a device counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByDevice<T> {
    /// The value of devices that are not named.
    pub others: T,
    /// Values of single devices.
    pub named: Vec<(String, T)>,
}

impl<T: Copy> ByDevice<T> {
    /// Makes a table with one value for all devices.
    pub const fn all(others: T) -> Self {
        Self { others, named: Vec::new() }
    }

    /// Makes a table of what a user gave, with `others` as the value of devices that nothing was
    /// given for.
    pub fn of(given: &[PerDevice<T>], others: T) -> Self {
        let mut this = Self::all(others);
        for PerDevice { device, value } in given {
            match device {
                Some(device) => this.named.push((device.clone(), *value)),
                None => this.others = *value,
            }
        }
        this
    }

    /// Returns the value for a device.
    pub fn on(&self, device: &str) -> T {
        let named = self.named.iter().rev().find(|(name, _)| name == device);
        named.map_or(self.others, |(_, value)| *value)
    }

    /// Returns all values.
    pub fn values(&self) -> impl Iterator<Item = T> {
        std::iter::once(self.others).chain(self.named.iter().map(|(_, value)| *value))
    }

    /// Returns the devices that are named.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.iter().map(|(name, _)| name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_for_one_device_or_the_others() {
        let given: Vec<PerDevice<HotSize>> =
            ["2GiB", "RPC0=max", "RPC1=off", "RPC0=1MiB"].iter().map(|text| text.parse().unwrap()).collect();
        let sizes = ByDevice::of(&given, HotSize::Auto);
        assert_eq!(sizes.on("RPC0"), HotSize::Bytes(ByteSize::mib(1)), "the last one counts");
        assert_eq!((sizes.on("RPC1"), sizes.on("x")), (HotSize::Off, HotSize::Bytes(ByteSize::gib(2))));
        assert_eq!(sizes.names().collect::<Vec<_>>(), ["RPC0", "RPC1", "RPC0"]);
        for text in ["auto", "off", "max", "RPC0=auto"] {
            assert_eq!(text.parse::<PerDevice<HotSize>>().unwrap().to_string(), text);
        }
        let error = "RPC0=lots".parse::<PerDevice<HotSize>>().unwrap_err().to_string();
        assert!(error.contains("`max`"), "{error}");
    }
}
