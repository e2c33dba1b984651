//! What was measured on devices, kept between runs: how many requests of which size each one wants.

mod device;
mod devices;
mod file;
mod settings;

pub use device::BlockDevice;
pub use devices::DeviceSettings;
pub use file::SettingsError;
pub use settings::{IoSettings, MeasuredBy};
