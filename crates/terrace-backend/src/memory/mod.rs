//! A model's weights and the memory that they lie in: buffer types, mapped files, and whose weight a tensor is.

pub mod buffers;
pub mod bus_error;
pub mod file_map;
pub mod mapped;
pub mod places;
pub mod weights;
