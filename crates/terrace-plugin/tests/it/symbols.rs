//! What the library needs of others, and what it does not have.

use crate::host::library;
use std::process::Command;

fn nm(options: &[&str]) -> Vec<String> {
    let output =
        Command::new("nm").args(options).arg(library()).output().expect("nm, as compilers come with it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect()
}

/// A host resolves nothing for it, and must not find ggml's functions in it.
#[test]
fn it_needs_and_offers_nothing_of_ggml() {
    let ours =
        |name: &&String| ["ggml_", "gguf_", "llama_", "_Z"].iter().any(|prefix| name.starts_with(prefix));
    let needed = nm(&["-D", "--undefined-only"]);
    let of_ggml: Vec<_> =
        needed.iter().filter(ours).filter(|name| name.contains("ggml") || name.contains("llama")).collect();
    assert!(of_ggml.is_empty(), "{of_ggml:?}");
    let mut offered: Vec<_> = nm(&["-D", "--defined-only"]);
    offered.retain(|name| ours(&name) && !name.starts_with("_ZN"));
    offered.sort();
    assert_eq!(offered, ["ggml_backend_init", "ggml_backend_score"]);
}

/// Nothing of ggml or llama.cpp is linked: no code of theirs beyond the jumps.
#[test]
fn it_has_no_code_of_ggml() {
    let all = nm(&["--defined-only"]);
    // Functions that terrace-ggml does not name, in each of ggml's and llama.cpp's libraries.
    for name in [
        "ggml_compute_forward_mul_mat",
        "ggml_vec_dot_q4_K_q8_K",
        "ggml_backend_sched_split_graph",
        "llama_grammar_init",
    ] {
        assert!(!all.iter().any(|other| other == name), "{name} is linked");
    }
    let size = std::fs::metadata(library()).unwrap().len();
    assert!(size < 16 << 20, "{size} bytes: that is not Terrace alone");
}

/// A function that a host lacks and that was not looked for would end the process when it is called.
#[test]
fn each_function_that_is_called_is_looked_for() {
    // Those of the backend itself, those with a stand-in, and one that is not called where logs are the
    // program's.
    let others = [
        "ggml_backend_init",
        "ggml_backend_score",
        "ggml_backend_cpu_reg",
        "ggml_tiled_wdata_size",
        "ggml_compute_forward_mul_mat_id_tiled",
        "ggml_log_set",
    ];
    let looked_for = include_str!("../../src/host/mod.rs");
    let mut called = nm(&["--defined-only"]);
    called.retain(|name| name.starts_with("ggml_") && !others.contains(&&**name));
    assert!(called.len() > 60, "{called:?}");
    called.retain(|name| !looked_for.contains(&format!("c\"{name}\"")));
    assert!(called.is_empty(), "{called:?}");
}
