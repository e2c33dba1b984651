//! Gives the library the name by which programs that are linked with it look for it.

#![allow(clippy::disallowed_methods, reason = "a build script is told things by the environment")]
#![allow(clippy::print_stdout, reason = "a build script talks to cargo")]

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        // The number is `TERRACE_ABI_VERSION`.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libterrace.so.0");
    }
}
