//! The raw floor: what C declares and the bindings do not, and handles that are freed with their owners.

pub mod abi;
pub mod owned;
pub mod scratch;
