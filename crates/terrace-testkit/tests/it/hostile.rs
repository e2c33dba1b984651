//! Broken files have the defect that they are named after, and readers refuse them.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use terrace_testkit::hostile::{self, Defect};
use terrace_testkit::{Arch, Spec, write, write_split};

/// Returns whether stock llama.cpp runs the file, in another process, because it aborts on some of
/// these files.
fn stock_runs(path: &Path) -> bool {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace-testkit"));
    command.args(["routing", "--generate", "2", "--threads", "1"]).arg(path);
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
}

#[test]
fn every_defect_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let good = write(&Spec { layers: 1, ..Spec::default() }, dir.path().join("good.gguf")).unwrap();
    assert!(stock_runs(&good));
    terrace_ggml::gguf::read(&good).unwrap();
    let made = hostile::write_all(&good, &dir.path().join("bad")).unwrap();
    assert_eq!(made.len(), Defect::ALL.len());
    let original = fs::read(&good).unwrap();
    for (defect, path) in made {
        assert!(fs::read(&path).unwrap() != original, "{defect:?} changed nothing");
        assert!(!stock_runs(&path), "stock llama.cpp runs {defect:?}");
    }
}

#[test]
fn split_models_with_wrong_shards_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let spec = Spec { layers: 2, ..Spec::default() };
    let shards = write_split(&spec, dir.path().join("a"), 3).unwrap();
    assert!(stock_runs(&shards[0]));
    let missing = hostile::missing_shard(&shards, &dir.path().join("missing")).unwrap();
    assert!(!stock_runs(&missing));
    let swapped = hostile::swapped_shards(&shards, &dir.path().join("swapped")).unwrap();
    assert!(!stock_runs(&swapped));
    // The other model has another number of layers, which stock llama.cpp notices. A shard of the
    // same spec with another seed would look right to any reader of headers.
    let other = write_split(&Spec { layers: 3, ..spec }, dir.path().join("b"), 3).unwrap();
    let mixed = hostile::mixed_shards(&shards, &other, &dir.path().join("mixed")).unwrap();
    assert!(!stock_runs(&mixed));
}

#[test]
fn what_is_not_a_model_cannot_be_spoilt() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text.gguf");
    fs::write(&text, "not a model").unwrap();
    let error = hostile::make(Defect::Magic, &text, &dir.path().join("out.gguf")).unwrap_err();
    assert!(matches!(error, terrace_testkit::Error::NotGguf { .. }), "{error}");
    let good = write(&Spec { layers: 1, ..Spec::new(Arch::Llama) }, dir.path().join("good.gguf")).unwrap();
    for len in [3, 20, 100, 5000] {
        fs::write(&text, &fs::read(&good).unwrap()[..len]).unwrap();
        assert!(hostile::make(Defect::Magic, &text, &dir.path().join("out.gguf")).is_err(), "{len} bytes");
    }
}
