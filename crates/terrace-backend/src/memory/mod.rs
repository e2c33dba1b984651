//! A model's weights and their memory: buffer types, mapped files, and which model a tensor belongs
//! to.

mod addresses;
pub mod asked;
pub mod contest;
pub mod file_map;
pub mod host;
pub mod interleaved;
pub mod loading;
pub mod managed;
pub mod moving;
pub mod offer;
pub mod places;
pub mod read_ahead;
pub mod weights;
