//! `terrace perplexity --reload-loop`, end to end: the model's files change between measurements.

use crate::common::{bundled, error_line, failure, json, run, stderr, stdout, terrace};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;
use terrace_testkit::{Arch, Spec, WeightType};

const TENSOR: &str = "blk.1.ffn_down_exps.weight";

/// A model, a donor for one of its tensors, and a text.
struct Fixture {
    dir: TempDir,
    model: PathBuf,
    text: PathBuf,
}

impl Fixture {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let mut spec = Spec::new(Arch::Qwen3Moe);
        let base = terrace_testkit::write(&spec, dir.path().join("base.gguf")).unwrap();
        spec.overrides.insert(0, (TENSOR.into(), WeightType::Q8_0));
        terrace_testkit::write(&spec, dir.path().join("donor.gguf")).unwrap();
        let model = dir.path().join("model.gguf");
        fs::copy(base, &model).unwrap();
        let text = dir.path().join("text.txt");
        fs::write(&text, "In the beginning God created the heaven and the earth. ".repeat(40)).unwrap();
        Self { dir, model, text }
    }

    /// An executable script in the scene's folder, where it also runs.
    fn script(&self, lines: &str) -> PathBuf {
        script(self.dir.path(), lines)
    }

    fn perplexity(&self) -> Command {
        let mut command = measure(&self.model, &self.text);
        command.current_dir(self.dir.path());
        command
    }
}

fn script(dir: &Path, lines: &str) -> PathBuf {
    let path = dir.join("script.sh");
    fs::write(&path, format!("#!/bin/sh\nset -e\n{lines}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn measure(model: &Path, text: &Path) -> Command {
    let mut command = terrace();
    command.env_remove("LLAMA_HOTSWAP_ENABLED").env_remove("LLAMA_PERPLEXITY_PRE_RELOAD_SCRIPT");
    command.arg("perplexity").arg(model).arg("-f").arg(text).args(["--ctx", "64", "--chunks", "2"]);
    command
}

/// The JSON objects on stdout, one per line.
fn passes(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", stderr(output));
    stdout(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The first call takes the donor, the second takes the original, the third changes nothing.
const THERE_AND_BACK: &str = r#"
echo "call of $1 for $TERRACE_MODEL"
if [ -e model.bak ]; then mv model.bak model.gguf; touch done
elif [ ! -e done ]; then cp donor.gguf new; ln model.gguf model.bak; mv new model.gguf
fi"#;

#[test]
fn measured_until_nothing_changes() {
    let scene = Fixture::new();
    let script = scene.script(THERE_AND_BACK);
    let alone = json(&scene.perplexity().arg("--json").output().unwrap());
    let donor =
        json(&measure(&scene.dir.path().join("donor.gguf"), &scene.text).arg("--json").output().unwrap());
    assert_ne!(alone["perplexity"], donor["perplexity"]);

    for managed in ["experts", "none"] {
        let _ = fs::remove_file(scene.dir.path().join("done"));
        let output = scene
            .perplexity()
            .args(["--json", "--stream", managed])
            .env("LLAMA_HOTSWAP_ENABLED", "1")
            .env("LLAMA_PERPLEXITY_PRE_RELOAD_SCRIPT", &script)
            .output()
            .unwrap();
        let passes = passes(&output);
        assert_eq!(passes.len(), 3, "{}", stderr(&output));
        for (i, (pass, expected)) in passes.iter().zip([&alone, &donor, &alone]).enumerate() {
            assert_eq!(pass["pass"], i);
            assert_eq!(pass["running"], expected["running"], "{managed}: pass {i}");
            assert_eq!(pass["perplexity"], expected["perplexity"], "{managed}: pass {i}");
            let swapped = pass["reloaded"]["swapped"].as_array().unwrap();
            assert_eq!(swapped.iter().any(|swapped| swapped["tensor"] == TENSOR), i > 0, "{swapped:?}");
        }
        assert_eq!(passes[1]["reloaded"]["swapped"][0]["tensor"], TENSOR);
        assert_eq!(passes[1]["reloaded"]["swapped"][0]["to"], "q8_0");
        let told = stderr(&output);
        assert!(told.contains(&format!("for {}", scene.model.display())), "{told}");
        assert!(told.contains(&format!("reloaded tensor '{TENSOR}': ")), "{told}");
    }

    // With options, and in the form for people.
    fs::remove_file(scene.dir.path().join("done")).unwrap();
    let output = scene.perplexity().args(["--reload-loop", "--pre-reload", "./script.sh"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let finals: Vec<&str> = stdout(&output).lines().filter(|line| line.starts_with("Final")).collect();
    assert_eq!(finals.len(), 3);
    assert!(finals[0] == finals[2], "{finals:?}");

    // Without a script nothing changes in between.
    assert_eq!(passes(&scene.perplexity().args(["--reload-loop", "--json"]).output().unwrap()).len(), 1);
}

/// The first call writes the same bytes again, the second does nothing.
#[test]
fn the_same_bytes_written_again_are_measured_again() {
    let scene = Fixture::new();
    scene.script("if [ ! -e done ]; then cp model.gguf new; mv new model.gguf; touch done; fi");
    let output = scene.perplexity().args(["--json", "--reload-loop", "--pre-reload", "./script.sh"]).output();
    let passes = passes(&output.unwrap());
    assert_eq!(passes.len(), 2);
    assert_eq!(passes[0]["perplexity"], passes[1]["perplexity"]);
    assert_eq!(passes[1]["reloaded"]["swapped"].as_array().unwrap().len(), 0);
}

#[test]
fn other_measurements_are_repeated_too() {
    let scene = Fixture::new();
    scene.script(THERE_AND_BACK);
    let base = scene.dir.path().join("base.kld");
    let base = base.to_str().unwrap();
    assert!(scene.perplexity().args(["--save-logits", base]).output().unwrap().status.success());
    let hotswap = ["--json", "--reload-loop", "--pre-reload", "./script.sh"];
    let klds: Vec<f64> = passes(&scene.perplexity().args(["--kld", base]).args(hotswap).output().unwrap())
        .iter()
        .map(|pass| pass["kld"]["value"].as_f64().unwrap())
        .collect();
    assert_eq!(klds.len(), 3);
    assert!(klds[0] == klds[2] && klds[1] > klds[0], "{klds:?}");
}

/// A script that fails, or does not exist, is said; what it did counts.
#[test]
fn how_a_script_ends_does_not_matter() {
    let scene = Fixture::new();
    let script = scene.script(&format!("{THERE_AND_BACK}\nexit 3"));
    let output = scene.perplexity().args(["--json", "--reload-loop", "--pre-reload"]).arg(&script).output();
    let output = output.unwrap();
    assert_eq!(passes(&output).len(), 3, "{}", stderr(&output));
    assert!(stderr(&output).contains("exit status: 3"), "{}", stderr(&output));
    // A shell command with arguments.
    fs::remove_file(scene.dir.path().join("done")).unwrap();
    let output = scene
        .perplexity()
        .args(["--json", "--reload-loop"])
        .env("LLAMA_PERPLEXITY_PRE_RELOAD_SCRIPT", "sh ./script.sh --first | cat")
        .output()
        .unwrap();
    assert_eq!(passes(&output).len(), 3, "{}", stderr(&output));
    assert!(stderr(&output).contains("call of --first for "), "{}", stderr(&output));
    let output = scene.perplexity().args(["--json", "--reload-loop", "--pre-reload", "./no-such"]).output();
    let output = output.unwrap();
    assert_eq!(passes(&output).len(), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("pre-reload script ./no-such: exit status: 127"), "{}", stderr(&output));
}

/// The first call writes no model, the second the model again.
#[test]
fn a_file_that_is_no_model_does_not_end_the_loop() {
    let scene = Fixture::new();
    scene.script(
        "if [ -e model.bak ]; then mv model.bak model.gguf; touch done\n\
         elif [ ! -e done ]; then ln model.gguf model.bak; echo nothing > new; mv new model.gguf; fi",
    );
    let output = scene.perplexity().args(["--json", "--reload-loop", "--pre-reload", "./script.sh"]).output();
    let output = output.unwrap();
    let passes = passes(&output);
    let told = stderr(&output);
    assert!(told.contains(&format!("hotswap: tensor '{TENSOR}' cannot be hot-swapped: ")), "{told}");
    assert!(passes.len() >= 2, "{told}");
    for pass in &passes {
        assert_eq!(pass["perplexity"], passes[0]["perplexity"], "{told}");
    }
    assert!(passes[1]["reloaded"]["refused"].as_array().unwrap().len() > 20, "{told}");
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let scene = Fixture::new();
    let usage = |args: &[&str], expected: &str| {
        let error = failure(&scene.perplexity().args(args).output().unwrap(), 2);
        assert!(error.contains(expected), "{error}");
    };
    usage(&["--pre-reload", "x"], "--reload-loop");
    usage(&["--reload-loop", "--save-logits", "x"], "--save-logits");
    usage(&["--tensor", "x"], "--reload-from");
    let output = scene.perplexity().args(["--no-such"]).output().unwrap();
    assert!(error_line(&stderr(&output)).contains("--no-such"));
}

/// Files of single tensors are tried one after the other; a copy of the first one comes before them.
#[test]
fn ready_made_tensors_are_tried_one_after_the_other() {
    let scene = Fixture::new();
    let donors = scene.dir.path().join("donors");
    fs::create_dir(&donors).unwrap();
    let donor = scene.dir.path().join("donor.gguf");
    let out = donors.join("d");
    let args = ["quantize", donor.to_str().unwrap(), out.to_str().unwrap(), "--split-tensors"];
    assert!(run(args).status.success());
    // A tensor of another shape, and a file that is no model.
    let mut wide = Spec::new(Arch::Qwen3Moe);
    wide.expert_ff *= 2;
    let wide = terrace_testkit::write(&wide, scene.dir.path().join("wide.gguf")).unwrap();
    let other = donors.join("zz.gguf");
    let only =
        ["quantize", wide.to_str().unwrap(), other.to_str().unwrap(), "--type", "COPY", "--only", TENSOR];
    assert!(run(only).status.success());
    fs::write(donors.join("a.gguf"), "nothing").unwrap();

    let alone = json(&scene.perplexity().arg("--json").output().unwrap());
    let fresh = json(&measure(&donor, &scene.text).arg("--json").output().unwrap());
    let output = scene
        .perplexity()
        .args(["--json", "--reload-from", "donors", "--tensor", r"blk\.1\.ffn_(down|up)_exps"])
        .output()
        .unwrap();
    let passes = passes(&output);
    let told = stderr(&output);
    // Alone, the copy, two tensors; the third is refused.
    let values: Vec<&Value> = passes.iter().map(|pass| &pass["perplexity"]).collect();
    assert_eq!(values.len(), 4, "{told}");
    assert_eq!((values[0], values[1]), (&alone["perplexity"], &alone["perplexity"]));
    assert!(values[2..].contains(&&fresh["perplexity"]), "{values:?} {fresh}");
    assert!(told.contains("control: the figure is the model's own"), "{told}");
    assert!(told.contains(&format!("hotswap: tensor '{TENSOR}' cannot be hot-swapped: its shape")), "{told}");
    assert!(told.contains("2 tensors measured, 1 refused"), "{told}");

    let none = scene.perplexity().args(["--reload-from", "donors", "--tensor", "no_such"]).output().unwrap();
    assert_eq!(none.status.code(), Some(2), "{}", stderr(&none));
    assert!(
        stderr(&none).contains("error: donors: no file has a tensor of the model that matches"),
        "{}",
        stderr(&none)
    );
}

/// The example script, over files with one tensor each, as `terrace quantize --split-tensors`
/// writes them.
#[test]
fn the_example_script_tries_one_tensor_after_the_other() {
    let dir = TempDir::new().unwrap();
    let split = |folder: &str, more: &[&str]| {
        let out = dir.path().join(folder);
        fs::create_dir(&out).unwrap();
        let (model, out) = (bundled(), out.join("model"));
        let args = ["quantize", model.to_str().unwrap(), out.to_str().unwrap(), "--split-tensors"];
        let output = run(args.iter().chain(more));
        assert!(output.status.success(), "{}", stderr(&output));
    };
    split("model", &["--type", "COPY"]);
    split("donors", &["--type", "Q2_K", "--pure", "--allow-requantize"]);
    let first = fs::read_dir(dir.path().join("model"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.to_string_lossy().contains("-00001-of-"))
        .unwrap();
    let text = bundled().with_file_name("sample.kjv.txt");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/tensor-swap.sh");
    let output = measure(&first, &text)
        .args(["--json", "--reload-loop", "--pre-reload"])
        .arg(script)
        .env("SOURCE_DIR", dir.path().join("donors"))
        .env("TENSORS", r"blk\.[02]\.ffn_(down|up)_exps\.weight")
        .output()
        .unwrap();
    let passes = passes(&output);
    // The model, four tensors, the model again.
    assert_eq!(passes.len(), 6, "{}", stderr(&output));
    let names = |pass: &Value| -> Vec<String> {
        let swapped = pass["reloaded"]["swapped"].as_array().unwrap();
        swapped.iter().map(|swapped| swapped["tensor"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&passes[0]), [""; 0]);
    assert_eq!((names(&passes[1]).len(), names(&passes[2]).len(), names(&passes[5]).len()), (1, 2, 1));
    let estimate = |pass: &Value| pass["perplexity"].as_f64().unwrap();
    assert_eq!(estimate(&passes[5]).to_bits(), estimate(&passes[0]).to_bits(), "as it was");
    for pass in &passes[1..5] {
        assert_ne!(estimate(pass), estimate(&passes[0]), "a tensor of two bits can be told");
    }
    assert!(stderr(&output).contains("[tensor-swap] all were tried"), "{}", stderr(&output));
    let left: Vec<_> = fs::read_dir(dir.path().join("model"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with(".gguf"))
        .collect();
    assert_eq!(left, [""; 0], "nothing is left behind");
}
