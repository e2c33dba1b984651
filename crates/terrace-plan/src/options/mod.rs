//! Options on which a plan depends. Each struct is a group of options of the command line (feature
//! `cli`): a field has the name of its option, and its documentation is the option's help.

mod context;
mod devices;
mod estimates;
mod hot;
mod memory;

pub use context::ContextOptions;
pub use devices::DeviceOptions;
pub use estimates::{EstimateOptions, Hits};
pub use hot::{HotLanes, HotOptions};
pub use memory::{MemoryOptions, Mmap};
