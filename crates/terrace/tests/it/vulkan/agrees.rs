//! Predictions with weights and copies in all places are no farther from the CPU's than those of
//! llama.cpp with all weights on the device.

use super::run;
use crate::common::{self, json};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;
use tempfile::TempDir;
use terrace_testkit::released::Released;
use terrace_testkit::{Arch, Spec};

/// Tokens of one graph: each token of its own, as when decoding, and all of a chunk, as in a prompt.
const GRAPHS: [&str; 2] = ["1", "64"];

/// How far a prediction is from the CPU's where a router decides otherwise, which it does for some tokens of each
/// text: up to 0.55 with all weights of gpt-oss on llvmpipe, in 24 texts.
const OTHER_EXPERT: f64 = 0.3;

/// How far predictions are from those of the CPU.
#[derive(Clone, Copy, Debug)]
struct Distance {
    mean: f64,
    /// Three quarters of the predictions are not farther: most have no token with other experts before them.
    most: f64,
    maximum: f64,
}

impl Distance {
    /// Whether these predictions are about as far as those, some of them with other experts if `routed`.
    fn is_like(self, other: Self, routed: bool) -> bool {
        // A part of the layers rounds as the device does, the others as the CPU.
        let (mean, flip) = if routed { (3.0, OTHER_EXPERT) } else { (2.0, 1e-5) };
        let within = |ours: f64, factor: f64, theirs: f64, least: f64| ours <= factor * theirs.max(least);
        within(self.most, 2.0, other.most, 1e-6)
            && within(self.mean, mean, other.mean, 1e-6)
            && within(self.maximum, 3.0, other.maximum, flip)
    }
}

/// A model, a text, and what stock llama.cpp predicts for it on the CPU.
struct Fixture {
    dir: TempDir,
    model: PathBuf,
    layers: u32,
    experts: u64,
}

impl Fixture {
    fn new(write: impl FnOnce(&Path)) -> Self {
        let dir = TempDir::new().unwrap();
        let model = dir.path().join("model.gguf");
        write(&model);
        let file = terrace_ggml::gguf::read(&model).unwrap();
        let layers =
            (0..).take_while(|l| file.tensor(&format!("blk.{l}.attn_norm.weight")).is_some()).count();
        let groups = terrace_plan::model::expert_groups(&file);
        let experts = groups.iter().map(|group| group.bundle.bytes() * u64::from(group.experts)).sum();
        let text = std::fs::read(common::bundled().with_file_name("sample.kjv.txt")).unwrap();
        std::fs::write(dir.path().join("text.txt"), &text[..4000]).unwrap();
        Self { dir, model, layers: layers.try_into().unwrap(), experts }
    }

    /// Where the predictions of stock llama.cpp on the CPU are, with graphs of this size: those of
    /// other sizes round differently.
    fn base(&self, graph: &str) -> String {
        self.dir.path().join(format!("{graph}.kld")).to_str().unwrap().to_owned()
    }

    fn save_base(&self, graph: &str) {
        let args = ["--stock", "--ubatch", graph, "--save-logits", &self.base(graph)];
        let saved = common::run(self.args(&args));
        assert!(saved.status.success(), "{}", common::stderr(&saved));
    }

    fn args(&self, more: &[&str]) -> Vec<String> {
        let text = self.dir.path().join("text.txt");
        let (model, text) = (self.model.to_str().unwrap(), text.to_str().unwrap());
        let fixed = ["perplexity", model, "-f", text, "--ctx", "64", "--chunks", "6", "--json"];
        fixed.iter().chain(more).map(|&arg| arg.to_owned()).collect()
    }

    /// How far the predictions with these options are from the CPU's.
    fn distance(&self, graph: &str, more: &[&str]) -> Distance {
        let base = self.base(graph);
        let fixed = ["--kld", &base, "--ubatch", graph];
        let report = json(&self.checked(run(self.args(&[&fixed[..], more].concat())), more));
        let number = |value: &Value| value.as_f64().unwrap();
        Distance {
            mean: number(&report["kld"]["value"]),
            most: number(&report["kld_percentiles"]["p75"]),
            maximum: number(&report["kld_percentiles"]["maximum"]),
        }
    }

    fn checked(&self, output: Output, more: &[&str]) -> Output {
        assert!(output.status.success(), "{more:?}: {:?} {}", output.status, common::stderr(&output));
        output
    }

    /// Requires what the module says of all of these, with graphs of each size.
    fn check(&self, cases: &[&[&str]]) {
        let all = (self.layers + 1).to_string();
        for graph in GRAPHS {
            self.save_base(graph);
            // All weights are on the device, and llama.cpp has it compute everything.
            let whole = self.distance(graph, &["-ngl", &all]);
            assert!(whole.maximum > 0.0, "the device computes with the CPU's bits: {whole:?}");
            for case in cases {
                let ours = self.distance(graph, case);
                eprintln!("{}: ubatch {graph}, {case:?}: {ours:?}, whole {whole:?}", self.model.display());
                assert!(
                    ours.is_like(whole, self.experts > 0),
                    "ubatch {graph}, {case:?}: {ours:?}, but with all on the device {whole:?}"
                );
            }
        }
    }
}

fn of_experts(arch: Arch) {
    let scene = Fixture::new(|path| {
        terrace_testkit::write(&Spec::new(arch), path).unwrap();
    });
    let half = (scene.layers / 2 + 1).to_string();
    // Little room: a third of the experts.
    let budget = (scene.experts / 3 + (3 << 20)).to_string();
    let (some, most) = ((scene.experts * 3 / 10).to_string(), (scene.experts + (4 << 20)).to_string());
    let streamed = ["--stream", "experts", "--ram-budget", &budget];
    let case = |layers: &str, streams: bool, copies: Option<&str>| -> Vec<String> {
        let mut args = vec!["-ngl".to_owned(), layers.to_owned()];
        if streams {
            args.extend(streamed.map(str::to_owned));
        }
        if let Some(size) = copies {
            args.extend(
                ["--hot-cache", size, "--hot-update", "64MiB", "--hot-lanes", "always"].map(str::to_owned),
            );
        }
        args
    };
    let cases = [
        case("0", true, None),
        case("0", true, Some(&some)),
        case("0", true, Some(&most)),
        case(&half, false, None),
        case(&half, true, None),
        case(&half, true, Some(&some)),
        case(&half, true, Some(&most)),
    ];
    let cases: Vec<Vec<&str>> = cases.iter().map(|case| case.iter().map(String::as_str).collect()).collect();
    scene.check(&cases.iter().map(Vec::as_slice).collect::<Vec<_>>());
}

fn dense(write: impl FnOnce(&Path)) {
    let scene = Fixture::new(write);
    let half = (scene.layers / 2 + 1).to_string();
    let streamed = ["-ngl", &half, "--stream", "ffn"];
    scene.check(&[&["-ngl", "0", "--stream", "ffn"], &["-ngl", &half], &streamed]);
}

// Not deepseek2: llvmpipe takes minutes to compile attention with its wide heads.
terrace_testkit::each!(of_experts:
    #[ignore = "on a Vulkan device: make test-vulkan"]
    mixtral = Arch::Mixtral,
    #[ignore = "on a Vulkan device: make test-vulkan"]
    qwen3moe = Arch::Qwen3Moe,
    #[ignore = "on a Vulkan device: make test-vulkan"]
    qwen2moe = Arch::Qwen2Moe,
    #[ignore = "on a Vulkan device: make test-vulkan"]
    gpt_oss = Arch::GptOss,
);

#[test]
#[ignore = "on a Vulkan device: make test-vulkan"]
fn llama() {
    dense(|path| {
        terrace_testkit::write(&Spec::new(Arch::Llama), path).unwrap();
    });
}

#[test]
#[ignore = "on a Vulkan device: make test-vulkan"]
fn starcoder2() {
    dense(|path| Released::new("starcoder2", false).unwrap().write(path, 1, None).unwrap());
}
