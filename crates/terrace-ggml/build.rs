//! Compiles the functions of llama.cpp that have C++ linkage only, and what catches C++ exceptions.

#![allow(clippy::disallowed_methods, reason = "a build script is told things by the environment")]
#![allow(clippy::print_stdout, reason = "a build script talks to cargo")]

#[path = "build/probes.rs"]
mod probes;

use std::path::{Path, PathBuf};

/// Over llama.cpp's `common`, whose headers are beside its sources.
const COMMON: [&str; 3] =
    ["src/pin/shims/chat.cpp", "src/pin/shims/grammar.cpp", "src/pin/shims/sampler.cpp"];

/// Without headers of llama.cpp's.
const SOURCES: [&str; 4] =
    ["src/cxx/bounded.cpp", "src/cxx/guard.cpp", "src/cxx/throws.cpp", "src/pin/shims/special_order.cpp"];

/// Over llama.cpp's own classes, whose headers are in its `src`.
const INTERNAL: [&str; 5] = [
    "src/pin/shims/grammar_check.cpp",
    "src/pin/shims/hidden.cpp",
    "src/pin/shims/memory_breakdown.cpp",
    "src/pin/shims/outputs.cpp",
    "src/pin/shims/tensor_map.cpp",
];

/// Over llama.cpp's `mtmd`.
const VISION: [&str; 1] = ["src/pin/shims/projector_memory.cpp"];

/// As [`INTERNAL`], only of the feature `testing`.
const TESTING: [&str; 1] = ["src/pin/shims/architectures.cpp"];

/// In place of functions of mingw-w64's C library.
const ROUNDING: &str = "src/cxx/rounding.c";

fn main() {
    for source in SOURCES.into_iter().chain(COMMON).chain(INTERNAL).chain(VISION).chain(TESTING).chain([
        "src/pin/shims/text.h",
        "src/pin/shims/chat_releases.h",
        "src/cxx/bounded.h",
        "build.rs",
        "build/probes.rs",
    ]) {
        println!("cargo:rerun-if-changed={source}");
    }
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").files(SOURCES);
    if cfg!(feature = "portable") {
        // llama-cpp-sys-2 links the C++ library then, as an archive.
        build.cpp_link_stdlib(None);
    }
    build.compile("terrace_llama_internals");

    let on = |name: &str| std::env::var(name).unwrap_or_default();
    println!("cargo:rerun-if-changed={ROUNDING}");
    if on("CARGO_CFG_TARGET_OS") == "windows" && on("CARGO_CFG_TARGET_ENV") == "gnu" {
        // All of it, so that it comes before the C library's.
        cc::Build::new().file(ROUNDING).link_lib_modifier("+whole-archive").compile("terrace_rounding");
    }

    // cmake/levels.cmake goes by the same variable.
    println!("cargo:rustc-check-cfg=cfg(levels)");
    println!("cargo:rerun-if-env-changed=TERRACE_LEVELS");
    if std::env::var_os("TERRACE_LEVELS").is_some() {
        println!("cargo:rustc-cfg=levels");
    }

    let llama = llama_cpp();
    probes::ask(&llama, Path::new(&std::env::var_os("OUT_DIR").expect("cargo says where")));
    let of_llama = |files: &[&str], own: &[&str], name: &str| {
        let mut build = cc::Build::new();
        build.cpp(true).std("c++17").files(files).warnings(false);
        for headers in own.iter().chain(&["include", "ggml/include", "vendor"]) {
            build.include(llama.join(headers));
        }
        if cfg!(feature = "portable") {
            build.cpp_link_stdlib(None);
        }
        build.compile(name);
    };
    of_llama(&COMMON, &["common"], "terrace_common");
    of_llama(&INTERNAL, &["src"], "terrace_llama_classes");
    if cfg!(feature = "testing") {
        of_llama(&TESTING, &["src"], "terrace_llama_testing");
    }
    of_llama(&VISION, &["tools/mtmd"], "terrace_mtmd");
}

/// The sources of llama.cpp that llama-cpp-sys-2 has built: those that `cargo xtask llama` was given, or as its CMake
/// wrote down.
fn llama_cpp() -> PathBuf {
    println!("cargo:rerun-if-env-changed=TERRACE_LLAMA_CPP");
    let home = std::env::var_os("TERRACE_LLAMA_CPP").map_or_else(written_down, PathBuf::from);
    assert!(home.join("common/chat.h").is_file(), "{} has no common/chat.h", home.display());
    home
}

fn written_down() -> PathBuf {
    let installed = std::env::var_os("DEP_LLAMA_GGML_CMAKE_DIR").expect("llama-cpp-sys-2 says where ggml is");
    // OUT/lib/cmake, beside OUT/build.
    let out = Path::new(&installed).ancestors().nth(2).expect("a folder within its OUT_DIR");
    let cache = out.join("build/CMakeCache.txt");
    let text = std::fs::read_to_string(&cache).unwrap_or_else(|error| panic!("{}: {error}", cache.display()));
    let home = text.lines().find_map(|line| line.strip_prefix("CMAKE_HOME_DIRECTORY:INTERNAL="));
    PathBuf::from(home.expect("CMake writes down where its sources are"))
}
