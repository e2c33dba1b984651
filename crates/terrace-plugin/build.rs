//! Makes a jump for each function of ggml that Terrace names, so that the library defines them all
//! and links none of ggml: each goes to the address that the host's function has.
//!
//! Only `terrace-ggml` names functions of ggml and llama.cpp, so its sources are the list. What else
//! looks like one (a type, a module) makes a jump that nothing calls and the linker drops.

#![allow(clippy::disallowed_methods, reason = "a build script is told things by the environment")]
#![allow(clippy::print_stdout, reason = "a build script talks to cargo")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// C++ of `terrace-ggml` that a plug-in has itself: it needs nothing of llama.cpp. All other functions of
/// it are over llama.cpp's internals, which a plug-in has no use for.
const KEPT: [&str; 5] = [
    "terrace_guard",
    "terrace_may_throw",
    "terrace_on_assertion",
    "terrace_report_assertions",
    "terrace_throw",
];

/// What every backend has itself, this one among them.
const OWN: [&str; 2] = ["ggml_backend_init", "ggml_backend_score"];

fn main() {
    let sources = Path::new("../terrace-ggml/src");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={}", sources.display());
    let mut names = BTreeSet::new();
    collect(sources, &mut names);
    names.retain(|name| !OWN.contains(&name.as_str()));

    let aarch64 = std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("aarch64");
    let (mut jumps, mut list) = (String::new(), String::from("[\n"));
    for (index, name) in names.iter().enumerate() {
        let jump = jump(aarch64, 8 * index);
        // A section each, so that the linker drops what nothing calls.
        let _ = write!(
            jumps,
            ".section .text.{name},\"ax\",@progbits\n.globl {name}\n.hidden {name}\n.type {name},@function\n{name}:\n{jump}"
        );
        let _ = writeln!(list, "c\"{name}\",");
    }
    jumps.push_str(".text\n");
    list.push(']');
    let out = std::env::var_os("OUT_DIR").expect("cargo says where");
    let out = Path::new(&out);
    fs::write(out.join("jumps.s"), jumps).expect("the output directory is writable");
    fs::write(out.join("names.rs"), list).expect("the output directory is writable");
    fs::write(out.join("count.rs"), names.len().to_string()).expect("the output directory is writable");

    // The tests' binary is a host: it has ggml, and offers it.
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        for names in ["ggml_*", "gguf_*"] {
            println!("cargo:rustc-link-arg-tests=-Wl,--export-dynamic-symbol={names}");
        }
    }
}

/// Jumps to the address at an offset in the table.
fn jump(aarch64: bool, offset: usize) -> String {
    if aarch64 {
        format!("adrp x16, {{table}}+{offset}\nldr x16, [x16, #:lo12:{{table}}+{offset}]\nbr x16\n")
    } else {
        format!("jmp *{{table}}+{offset}(%rip)\n")
    }
}

/// Adds all names in a folder's sources that may be functions of ggml, and those of C++ over its internals.
fn collect(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("terrace-ggml lies beside this crate") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            collect(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("readable sources");
            let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let is_function = |word: &&str| {
                ["ggml_", "gguf_", "llama_", "mtmd_"].iter().any(|prefix| word.starts_with(prefix))
                    && word.len() > 6
                    && !word.bytes().any(|b| b.is_ascii_uppercase())
            };
            names.extend(words.filter(is_function).map(str::to_owned));
            let declared = text.split("fn terrace_").skip(1).filter_map(|rest| rest.split('(').next());
            let internals = declared.map(|name| format!("terrace_{name}"));
            names.extend(internals.filter(|name| !KEPT.contains(&name.as_str())));
        }
    }
}
