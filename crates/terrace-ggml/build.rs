//! Compiles the one function of llama.cpp that has C++ linkage only.

fn main() {
    println!("cargo:rerun-if-changed=src/llama/tensor_map.cpp");
    cc::Build::new().cpp(true).std("c++17").file("src/llama/tensor_map.cpp").compile("terrace_tensor_map");
}
