//! Lets libraries of ggml's backends (`libggml-vulkan.so`) use the ggml that is linked into the
//! program: its functions are exported.

#![allow(clippy::disallowed_methods, reason = "a build script is told things by the environment")]
#![allow(clippy::print_stdout, reason = "a build script talks to cargo")]

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        for names in ["ggml_*", "gguf_*"] {
            println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol={names}");
        }
    }
}
