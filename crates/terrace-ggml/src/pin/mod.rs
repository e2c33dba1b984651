//! Everything that a new release of llama.cpp can break, in one place. `PIN.md` lists what to check at an
//! update, and in which order; `cargo xtask pin TREE` compares this folder with a source tree.
//!
//! Beside the files of Rust, `shims/` holds C++ over functions that llama.cpp declares for C++ only,
//! `headers/` ggml's private header in the versions that hosts of the plug-in have, and `facts.toml` what is
//! relied on in llama.cpp's sources that no compiler can compare.
//!
//! Nothing here depends on the rest of this crate. Crates that do not depend on this one get what they need of
//! it as data: `mtp` is a field of the model file that is read, [`scheduler::OFFLOAD_MIN_BATCH`] a wish of a
//! plan.

pub(crate) mod abi;
pub(crate) mod calls;
pub(crate) mod hosts;
pub(crate) mod layout;
pub(crate) mod mtp;
pub(crate) mod numbers;
pub mod scheduler;
