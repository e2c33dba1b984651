//! Measurements of devices that are kept between runs: the best number and size of requests for
//! each.

mod device;
mod devices;
mod file;
mod settings;

pub use device::{BlockDevice, disk_of};
pub use devices::DeviceSettings;
pub use settings::{IoSettings, MeasuredBy};
