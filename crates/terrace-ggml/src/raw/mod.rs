//! The raw floor: what C declares and the bindings do not.

pub mod abi;
