//! What the llama.cpp that is linked has: asked of the compiler, over the headers of its sources. This is the only
//! place that tells one release from another; `src/pin/layout.rs` has what follows for structures.

use std::fmt::Write as _;
use std::path::Path;

/// Fields of ggml's private structures that some releases have: the name of the answer, and the field.
const FIELDS: [(&str, &str); 3] = [
    ("lists_of_tensors", "ggml_backend_buffer_type_i{}.alloc_buffer_n"),
    ("copies_2d", "ggml_backend_buffer_i{}.set_tensor_2d"),
    ("copies_n", "ggml_backend_buffer_i{}.set_tensor_n"),
];

/// Else: the name of the answer, and an expression that compiles where it is yes.
const OTHERS: [(&str, &str); 1] = [
    // Copies of sequences say how keys and values are rotated.
    ("state_rotations", "sizeof(char[LLAMA_STATE_SEQ_VERSION >= 4 ? 1 : -1])"),
];

/// The header, and the name of the version of the interface in it.
const HEADER: &str = "ggml-backend-impl.h";
const VERSION: &str = "#define GGML_BACKEND_API_VERSION";

/// The header of ggml's RPC backend, and the names of the major and minor version of its protocol in it.
const RPC_HEADER: &str = "ggml/include/ggml-rpc.h";
const PROTOCOL: [&str; 2] = ["#define RPC_PROTO_MAJOR_VERSION", "#define RPC_PROTO_MINOR_VERSION"];

/// Asks for everything. Writes `linked.rs` into `out`, for `pin/layout.rs`, and has cargo set `has_NAME` for each
/// answer that is yes.
///
/// # Panics
/// If the headers do not compile.
pub fn ask(llama: &Path, out: &Path) {
    let header = llama.join("ggml/src").join(HEADER);
    let version = defined(&header, VERSION);
    let [major, minor] = PROTOCOL.map(|name| defined(&llama.join(RPC_HEADER), name));

    assert!(compiles(llama, out, "0"), "{} does not compile", header.display());
    let mut linked =
        format!("pub const LINKED_INTERFACE: Interface = Interface {{ api: {version}, has: Functions {{ ");
    for (name, field) in FIELDS {
        let _ = write!(linked, "{name}: {}, ", set(name, compiles(llama, out, field)));
    }
    for (name, expression) in OTHERS {
        set(name, compiles(llama, out, expression));
    }
    linked += "} };\n";
    let _ = writeln!(linked, "/// Major and minor version of the protocol of ggml's RPC backend.");
    let _ = writeln!(linked, "pub const LINKED_PROTOCOL: (u8, u8) = ({major}, {minor});");
    std::fs::write(out.join("linked.rs"), linked).expect("the output directory is writable");
}

/// The number that a header defines.
fn defined(header: &Path, name: &str) -> u32 {
    println!("cargo:rerun-if-changed={}", header.display());
    let text =
        std::fs::read_to_string(header).unwrap_or_else(|error| panic!("{}: {error}", header.display()));
    let number = text.lines().find_map(|line| line.trim().strip_prefix(name)?.trim().parse().ok());
    number.unwrap_or_else(|| panic!("{} has no line {name}", header.display()))
}

/// Has cargo set `has_NAME` if the answer is yes. Returns the answer.
fn set(name: &str, answer: bool) -> bool {
    println!("cargo:rustc-check-cfg=cfg(has_{name})");
    if answer {
        println!("cargo:rustc-cfg=has_{name}");
    }
    answer
}

/// Returns true if an expression compiles after the headers.
fn compiles(llama: &Path, out: &Path, expression: &str) -> bool {
    let source = out.join("probe.cpp");
    let text =
        format!("#include \"{HEADER}\"\n#include \"llama.h\"\nvoid probe() {{ (void) ({expression}); }}\n");
    std::fs::write(&source, text).expect("the output directory is writable");
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").warnings(false);
    for headers in ["include", "ggml/include", "ggml/src"] {
        build.include(llama.join(headers));
    }
    let compiler = build.get_compiler();
    let mut command = compiler.to_command();
    if compiler.is_like_msvc() {
        command.arg("/Zs");
    } else {
        // Zig's clang fails where nothing is written.
        command.arg("-c").arg("-o").arg(out.join("probe.o"));
    }
    let output = command.arg(&source).output();
    output.expect("the compiler that llama.cpp was built with").status.success()
}
