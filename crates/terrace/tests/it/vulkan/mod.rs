//! ggml's Vulkan backend, as a library or linked in: `make test-vulkan`. Without a GPU it runs on
//! Mesa's llvmpipe, which computes on the CPU, so the tests say what is right, not what is fast. `reloaded`
//! works around a fault of that of Mesa 22 (`fill.c`, docs/benchmarks/devices.md).
//!
//! A device rounds differently than the CPU, so nothing is equal bit by bit. Predictions are compared
//! by their KL divergence from those of stock llama.cpp on the CPU: with weights in several places it
//! must be no larger than with all of them on the device, where llama.cpp computes all by itself.

mod agrees;
mod layer;
mod lost;
mod reloaded;
mod used;

use crate::common;
use std::path::PathBuf;
use std::process::Command;

/// The folder of `libggml-vulkan.so`; without it the program has the backend linked in.
const LIBRARY: &str = "VULKAN_BACKEND";

/// A command that sees the first Vulkan device.
fn terrace() -> Command {
    let mut command = common::terrace();
    // Tests are not to find devices; these do. llvmpipe is only taken when it is named.
    command.env_remove("GGML_DISABLE_VULKAN").env("GGML_VK_VISIBLE_DEVICES", "0");
    // llvmpipe of Mesa 22 crashes without. Its threads compete with those of other tests.
    command.env("LP_NATIVE_VECTOR_WIDTH", "128").env("LP_NUM_THREADS", "1");
    // What is compiled for the device once serves all tests.
    let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("shaders");
    command.env("MESA_SHADER_CACHE_DIR", cache);
    if let Some(folder) = std::env::var_os(LIBRARY) {
        command.env("TERRACE_BACKENDS", folder);
    }
    command
}

/// Runs the program with a Vulkan device.
fn run<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> std::process::Output {
    terrace().args(args).output().unwrap()
}
