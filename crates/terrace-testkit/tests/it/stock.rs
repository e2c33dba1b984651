//! Every architecture's file loads and runs with stock llama.cpp.

use crate::common::{Run, run};
use std::collections::HashSet;
use std::path::Path;
use terrace_testkit::{Arch, Routing, Spec, WeightType, write, write_split};

fn check(run: &Run, what: &str) {
    assert!(run.prompt >= 100, "{what}: a prompt of {} tokens", run.prompt);
    for (step, logits) in run.logits.iter().enumerate() {
        assert!(logits.iter().all(|x| x.is_finite()), "{what}: step {step} has logits that are not finite");
        let spread = logits.iter().fold(0f32, |m, x| m.max(x.abs()));
        assert!(spread > 0.5 && spread < 200.0, "{what}: step {step}: largest logit {spread}");
    }
    let distinct: HashSet<i32> = run.tokens.iter().map(|t| t.0).collect();
    assert!(distinct.len() >= 4, "{what}: tokens {:?}", run.tokens);
}

fn made(spec: &Spec, dir: &Path) -> Run {
    let path = write(spec, dir.join("model.gguf")).unwrap();
    run(&path, 16)
}

#[test]
fn every_architecture_runs_and_repeats() {
    let dir = tempfile::tempdir().unwrap();
    for &arch in Arch::ALL {
        let spec = Spec::new(arch);
        let path = write(&spec, dir.path().join(format!("{arch}.gguf"))).unwrap();
        let first = run(&path, 16);
        check(&first, arch.name());
        assert!(first == run(&path, 16), "{arch}: a second run differs");
    }
}

#[test]
fn every_type_runs() {
    let dir = tempfile::tempdir().unwrap();
    // Other types lack vector kernels and are slow to quantise, or are rarely used for whole
    // models.
    for ty in [
        WeightType::F32,
        WeightType::F16,
        WeightType::BF16,
        WeightType::Q4_0,
        WeightType::Q8_0,
        WeightType::Q2_K,
        WeightType::Q3_K,
        WeightType::Q4_K,
        WeightType::Q5_K,
        WeightType::Q6_K,
        WeightType::IQ2_XXS,
        WeightType::IQ3_S,
        WeightType::IQ4_NL,
        WeightType::IQ4_XS,
        WeightType::MXFP4,
    ] {
        let spec = Spec { layers: 2, experts: 4, top_k: 2, ..Spec::default().with_type(ty) };
        check(&made(&spec, dir.path()), ty.name());
    }
}

#[test]
fn types_can_differ_between_tensors() {
    let dir = tempfile::tempdir().unwrap();
    let spec = Spec {
        expert_down_type: Some(WeightType::Q6_K),
        overrides: vec![
            ("blk.1.ffn_gate_exps".into(), WeightType::IQ4_XS),
            ("output.weight".into(), WeightType::Q8_0),
        ],
        ..Spec::default()
    };
    check(&made(&spec, dir.path()), "mixed types");
}

#[test]
fn gate_and_up_fused_or_not() {
    let dir = tempfile::tempdir().unwrap();
    for &arch in Arch::ALL.iter().filter(|arch| arch.can_fuse_gate_up()) {
        for fused_gate_up in [false, true] {
            let spec = Spec { fused_gate_up, ..Spec::new(arch) };
            check(&made(&spec, dir.path()), &format!("{arch}, fused {fused_gate_up}"));
        }
    }
}

#[test]
fn skewed_routing_runs() {
    let dir = tempfile::tempdir().unwrap();
    for &arch in Arch::ALL.iter().filter(|arch| arch.is_moe()) {
        let spec = Spec { routing: Routing::Skewed, ..Spec::new(arch) };
        check(&made(&spec, dir.path()), &format!("{arch}, skewed"));
    }
}

#[test]
fn split_files_are_the_same_model() {
    let dir = tempfile::tempdir().unwrap();
    for arch in [Arch::Llama, Arch::Qwen3Moe] {
        let spec = Spec::new(arch);
        let whole = made(&spec, dir.path());
        let shards = write_split(&spec, dir.path(), 3).unwrap();
        assert_eq!(shards.len(), 3);
        assert!(shards.iter().all(|p| p.is_file()));
        assert!(shards[2].ends_with(format!("{arch}-00003-of-00003.gguf")));
        assert!(whole == run(&shards[0], 16), "{arch}: split differs from whole");
    }
}

#[test]
fn bytes_depend_on_the_spec_alone() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = |spec: &Spec| std::fs::read(write(spec, dir.path().join("model.gguf")).unwrap()).unwrap();
    let spec = Spec::new(Arch::Deepseek2);
    let first = bytes(&spec);
    assert!(first == bytes(&spec));
    let other = bytes(&Spec { seed: 2, ..spec });
    assert_eq!(first.len(), other.len());
    assert!(first != other);
}

#[test]
fn contradictions_are_refused() {
    for spec in [
        Spec { top_k: 9, ..Spec::default() },
        Spec { layers: 0, ..Spec::default() },
        Spec { kv_heads: 3, ..Spec::default() },
        Spec { vocab: 100, ..Spec::default() },
        Spec { fused_gate_up: true, ..Spec::default() },
        Spec { experts: 8, ..Spec::new(Arch::Llama) },
        Spec { embd: 512, ..Spec::new(Arch::Qwen2Moe) },
        Spec { embd: 128, routing: Routing::Skewed, ..Spec::default() },
    ] {
        let error = write(&spec, "/nonexistent/model.gguf").unwrap_err();
        assert!(matches!(error, terrace_testkit::Error::Spec { .. }), "{error}");
    }
}
