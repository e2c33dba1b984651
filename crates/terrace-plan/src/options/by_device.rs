//! Values of options by device.

use std::fmt;
use std::str::FromStr;

/// A value for one device (`DEVICE=VALUE`), or for all that are not named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerDevice<T> {
    /// ggml's name of the device; `None` means all others.
    pub device: Option<String>,
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

/// Values that a user gave by device. Of several for a device, the last one counts.
pub trait ByDevice<T: Copy> {
    /// Returns the value for a device; `None` if nothing was given for it.
    fn on(&self, device: &str) -> Option<T>;

    /// Returns the value for devices that are not named.
    fn others(&self) -> Option<T>;

    /// Returns the devices that are named.
    fn names(&self) -> impl Iterator<Item = &str>;
}

impl<T: Copy> ByDevice<T> for [PerDevice<T>] {
    fn on(&self, device: &str) -> Option<T> {
        let named = self.iter().rev().find(|given| given.device.as_deref() == Some(device));
        named.map(|given| given.value).or_else(|| self.others())
    }

    fn others(&self) -> Option<T> {
        self.iter().rev().find(|given| given.device.is_none()).map(|given| given.value)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.iter().filter_map(|given| given.device.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::HotSize;
    use terrace_model::ByteSize;

    #[test]
    fn values_are_for_one_device_or_the_others() {
        let given: Vec<PerDevice<HotSize>> =
            ["2GiB", "RPC0=max", "RPC1=off", "RPC0=1MiB"].iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(given.on("RPC0"), Some(HotSize::Bytes(ByteSize::mib(1))), "the last one counts");
        let others = Some(HotSize::Bytes(ByteSize::gib(2)));
        assert_eq!((given.on("RPC1"), given.on("x"), given.others()), (Some(HotSize::Off), others, others));
        assert_eq!(given.names().collect::<Vec<_>>(), ["RPC0", "RPC1", "RPC0"]);
        assert_eq!(given[1..].on("x"), None, "nothing was given for it");
        for text in ["auto", "off", "max", "max-1 GiB", "RPC0=auto"] {
            assert_eq!(text.parse::<PerDevice<HotSize>>().unwrap().to_string(), text);
        }
        let error = "RPC0=lots".parse::<PerDevice<HotSize>>().unwrap_err();
        assert!(error.contains("`max`"), "{error}");
    }
}
