//! Compiles the functions of llama.cpp that have C++ linkage only, and what catches C++ exceptions.

const SOURCES: [&str; 5] = [
    "src/cxx/guard.cpp",
    "src/cxx/throws.cpp",
    "src/llama/memory_breakdown.cpp",
    "src/llama/special_order.cpp",
    "src/llama/tensor_map.cpp",
];

/// Only of the feature `testing`.
const TESTING: [&str; 1] = ["src/testing/architectures.cpp"];

fn main() {
    for source in SOURCES.into_iter().chain(TESTING) {
        println!("cargo:rerun-if-changed={source}");
    }
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").files(SOURCES);
    if cfg!(feature = "testing") {
        build.files(TESTING);
    }
    if cfg!(feature = "portable") {
        // llama-cpp-sys-2 links the C++ library then, as an archive.
        build.cpp_link_stdlib(None);
    }
    build.compile("terrace_llama_internals");
}
