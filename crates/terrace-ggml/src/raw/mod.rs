//! The lowest layer: C declarations that the bindings lack, and handles that are freed with their
//! owners.

pub mod abi;
pub mod layout;
pub mod owned;
pub mod scratch;
