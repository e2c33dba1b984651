//! Everything that a new release of llama.cpp can break, in one place. `PIN.md` lists what to check at an
//! update, and in which order; `cargo xtask pin TREE` compares this folder with a source tree.
//!
//! `shims/` holds C++ over functions that llama.cpp declares for C++ only; `headers/` holds ggml's private
//! header in the versions that hosts of the plug-in have.

pub mod abi;
pub mod calls;
pub mod layout;
