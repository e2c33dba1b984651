//! Tensors that lie on the device are replaced there.

use super::{layer, run, terrace};
use crate::common::{json, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use tempfile::TempDir;
use terrace_testkit::{Arch, Spec, WeightType};

/// The first call takes the donor, the second takes the original, the third changes nothing.
const THERE_AND_BACK: &str = r#"#!/bin/sh
set -e
if [ -e model.bak ]; then mv model.bak model.gguf; touch done
elif [ ! -e done ]; then cp donor.gguf new; ln model.gguf model.bak; mv new model.gguf
fi"#;

fn there_and_back(tensor: &str, ty: WeightType, more: &[&str]) {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    let mut spec = Spec::new(Arch::Qwen3Moe);
    terrace_testkit::write(&spec, at("model.gguf")).unwrap();
    spec.overrides.insert(0, (tensor.into(), ty));
    terrace_testkit::write(&spec, at("donor.gguf")).unwrap();
    fs::write(at("text.txt"), "In the beginning God created the heaven and the earth. ".repeat(4)).unwrap();
    fs::write(at("script.sh"), THERE_AND_BACK).unwrap();
    fs::set_permissions(at("script.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let text = at("text.txt");
    let measure = |model: &str, more: &[&str]| -> Vec<String> {
        let model = at(model);
        let fixed =
            ["perplexity", model.to_str().unwrap(), "-f", text.to_str().unwrap(), "--ctx", "64", "--json"];
        let fixed = fixed.iter().chain(&["--chunks", "2", "--ubatch", "1"]);
        fixed.chain(more).map(|&arg| arg.to_owned()).collect()
    };
    let alone = json(&run(measure("model.gguf", more)));
    let donor = json(&run(measure("donor.gguf", more)));
    assert_ne!(alone["perplexity"], donor["perplexity"], "{tensor} has an effect");
    let loop_ = [more, &["--reload-loop", "--pre-reload", "./script.sh"]].concat();
    let mut command = terrace();
    // llvmpipe of Mesa 22 corrupts the heap without, once buffers of the device are freed.
    layer::add(&mut command, dir.path(), "fill", include_str!("fill.c"));
    let output = command.current_dir(dir.path()).args(measure("model.gguf", &loop_)).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let passes: Vec<Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(passes.len(), 3, "{}", stderr(&output));
    // Which experts have copies when a pass begins depends on what was measured before it, and the
    // CPU computes the others: it rounds differently.
    let number = |report: &Value| report["perplexity"].as_f64().unwrap().ln();
    let room = if more.contains(&"--hot-cache") { 0.02 } else { 0.0 };
    for (i, (pass, expected)) in passes.iter().zip([&alone, &donor, &alone]).enumerate() {
        let far = (number(pass) - number(expected)).abs();
        assert!(far <= room, "{tensor}, {more:?}: pass {i} is {far} from {expected}");
    }
    assert_eq!(passes[1]["reloaded"]["swapped"][0]["tensor"], tensor);
}

#[test]
#[ignore = "on a Vulkan device: make test-vulkan"]
fn weights_of_layers() {
    there_and_back("blk.2.attn_q.weight", WeightType::Q8_0, &["-ngl", "99"]);
    there_and_back("blk.2.ffn_down_exps.weight", WeightType::Q6_K, &["-ngl", "2"]);
}

/// All experts have copies: these are made again.
#[test]
#[ignore = "on a Vulkan device: make test-vulkan"]
fn weights_with_copies() {
    let streamed = ["-ngl", "0", "--stream", "experts", "--ram-budget", "8MiB"];
    let copies = ["--hot-cache", "64MiB", "--hot-update", "64MiB", "--hot-lanes", "always"];
    there_and_back("blk.1.ffn_up_exps.weight", WeightType::Q8_0, &[&streamed[..], &copies].concat());
}
