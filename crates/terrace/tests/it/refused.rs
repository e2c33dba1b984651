//! Models that cannot generate text are refused by name.

use crate::common::{failure, run};
use std::path::Path;
use tempfile::TempDir;
use terrace_testkit::{Arch, Spec, write, write_edited};

/// The error of a run of a model of the kit under another architecture's name.
#[track_caller]
fn refusal(arch: Arch, name: &str, options: &[&str]) -> String {
    let dir = TempDir::new().unwrap();
    let like = write(&Spec::new(arch), dir.path().join("like.gguf")).unwrap();
    let model = dir.path().join("model.gguf");
    write_edited(&like, &model, &[("general.architecture", name)]).unwrap();
    let prompt =
        ["run", as_text(&model), "-p", &"word ".repeat(600), "-n", "2", "--ubatch", "64"].map(String::from);
    failure(&run(prompt.iter().map(String::as_str).chain(options.iter().copied())), 1)
}

fn as_text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn diffusion_models_are_refused_by_name() {
    for (like, name) in [
        (Arch::Llama, "dream"),
        (Arch::Llama, "llada"),
        (Arch::Qwen3Moe, "llada-moe"),
        (Arch::Qwen3Moe, "rnd1"),
    ] {
        for options in [&["--stock"][..], &["--stream", "none"], &["--stream", "all"], &[]] {
            let error = refusal(like, name, options);
            assert!(error.contains(&format!("is a diffusion model ({name})")), "{name} {options:?}: {error}");
        }
    }
}
