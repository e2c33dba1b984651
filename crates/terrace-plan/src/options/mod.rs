//! Options on which a plan depends. Each struct is a group of options of the command line: a field has the name
//! of its option, and its documentation is the option's help. [`crate::Wishes`] holds the groups.

mod budget;
mod by_device;
mod context;
mod devices;
mod estimates;
mod expected;
mod hot;
mod hot_size;
mod hot_split;
mod kv_choice;
pub(crate) mod manage;
mod memory;

pub use budget::Budget;
pub use by_device::{ByDevice, PerDevice};
pub use context::ContextOptions;
pub use devices::DeviceOptions;
pub use estimates::{EstimateOptions, Hits};
pub use expected::{Expected, ExpectedSource};
pub use hot::{HotLanes, HotOptions};
pub use hot_size::HotSize;
pub use hot_split::HotSplit;
pub use kv_choice::KvChoice;
pub use manage::Manage;
pub use memory::{MemoryOptions, Mmap};
