//! Tensors are replaced under a loaded model: it then computes, bit for bit, what a fresh load of the equivalent file does;
//! when they return, what it did before; and where a replacement is refused, nothing has changed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::MutexGuard;
use terrace_engine::{Budget, Engine, Manage, Options, Replacement, Sampling, Source};
use terrace_model::ByteSize;
use terrace_testkit::{Arch, Spec, WeightType};

/// One model computes at a time: ggml's threads spin.
static ONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn dir() -> tempfile::TempDir {
    // On the disk of the target directory: /tmp may be memory, which has no direct I/O.
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn options(model: &Path, manage: Manage) -> Options {
    let ram_budget = match manage {
        Manage::None | Manage::Mapped => Budget::Auto,
        _ => Budget::Bytes(streaming_budget(model, manage)),
    };
    Options {
        model: model.into(),
        manage,
        ram_budget,
        ctx: Some(256),
        threads: Some(1),
        ..Options::default()
    }
}

/// What is resident, and room for two experts of each layer at their largest type.
fn streaming_budget(model: &Path, manage: Manage) -> ByteSize {
    let file = terrace_ggml::gguf::read(model).unwrap();
    let ram_budget = Budget::Bytes(ByteSize::gib(1 << 20));
    let request = terrace_plan::Request { manage, ram_budget, ..Default::default() };
    let machine = terrace_plan::Machine { ram_available: ByteSize::gib(1 << 20) };
    let plan = terrace_plan::plan(&file, &machine, &request).unwrap();
    let bundles: ByteSize =
        terrace_plan::expert_groups(&file).iter().map(|group| ByteSize(4 * group.bundle.bytes())).sum();
    ByteSize(4 * plan.minimum.bytes()).min(plan.resident + bundles).max(ByteSize(2 * plan.minimum.bytes()))
}

fn load(options: Options) -> Engine {
    Engine::load(options, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// Bits of the logits behind a prompt, and greedy tokens and logits behind them.
#[derive(Debug, PartialEq, Clone)]
struct Trace {
    prompt: Vec<u32>,
    tokens: Vec<i32>,
    end: Vec<u32>,
}

fn trace(engine: &mut Engine) -> Trace {
    engine.reset();
    let tokens = engine.tokenize("The water goes down from one terrace to the next, ", true, false).unwrap();
    let go_on = &mut |_: &[u8]| ControlFlow::Continue(());
    let bits = |engine: &mut Engine| engine.logits().unwrap().iter().map(|l| l.to_bits()).collect();
    engine.generate(&tokens, Some(0), &Sampling::greedy(), go_on).unwrap();
    let prompt = bits(engine);
    let generation = engine.generate(&tokens[..1], Some(6), &Sampling::greedy(), go_on).unwrap();
    Trace { prompt, tokens: generation.tokens, end: bits(engine) }
}

fn from_file(tensor: &str, path: &Path) -> Replacement {
    Replacement { tensor: tensor.into(), from: Source::File(path.into()) }
}

fn original(tensor: &str) -> Replacement {
    Replacement { tensor: tensor.into(), from: Source::Original }
}

fn write(spec: &Spec, path: PathBuf) -> PathBuf {
    terrace_testkit::write(spec, path).unwrap()
}

/// The same weights with one tensor stored otherwise.
fn with(spec: &Spec, tensor: &str, ty: WeightType) -> Spec {
    let mut other = spec.clone();
    other.overrides.insert(0, (tensor.into(), ty));
    other
}

const TYPES: [WeightType; 6] = [
    WeightType::Q8_0,
    WeightType::Q4_0,
    WeightType::IQ2_XS,
    WeightType::Q6_K,
    WeightType::IQ1_M,
    WeightType::F16,
];

/// Matrices of the model, one of each role that has one.
fn one_of_each_role(model: &Path) -> Vec<String> {
    let file = terrace_ggml::gguf::read(model).unwrap();
    let mut roles = std::collections::BTreeMap::new();
    for tensor in &file.tensors {
        let role = tensor.name.rsplit('.').nth(1).unwrap_or_default().to_owned();
        let plain = role.starts_with("attn_") || role.starts_with("ffn_") || role.starts_with("token_embd");
        let other = role.contains("norm") || role.contains("sinks") || role.contains("probs");
        if tensor.shape.dims() >= 2 && tensor.name.ends_with(".weight") && plain && !other {
            roles.insert(role, tensor.name.clone());
        }
    }
    roles.into_values().collect()
}

#[test]
fn a_swapped_model_computes_what_the_equivalent_file_does() {
    let _alone = alone();
    for &arch in Arch::ALL {
        let dir = dir();
        let spec = Spec::new(arch);
        let base = write(&spec, dir.path().join("base.gguf"));
        let tensors = one_of_each_role(&base);
        assert!(tensors.len() >= 5, "{arch}: {tensors:?}");
        let streamed = if arch.is_moe() { Manage::Experts } else { Manage::Ffn };
        let donors: Vec<PathBuf> = tensors
            .iter()
            .zip(TYPES.into_iter().cycle())
            .map(|(tensor, ty)| write(&with(&spec, tensor, ty), dir.path().join(format!("{tensor}.gguf"))))
            .collect();
        for manage in [Manage::None, streamed, Manage::Mapped] {
            let mut engine = load(options(&base, manage));
            let before = trace(&mut engine);
            for (i, (tensor, donor)) in tensors.iter().zip(&donors).enumerate() {
                let label = format!("{arch}, --manage {manage}, {tensor}");
                let report = engine.swap(&[from_file(tensor, donor)]).unwrap();
                assert_eq!(report.swapped.len(), 1, "{label}: {report}");
                let swapped = trace(&mut engine);
                // The fresh load of the mapped case would be the same as the resident one's.
                if manage != Manage::Mapped || i == 0 {
                    let fresh = trace(&mut load(options(donor, manage)));
                    assert!(swapped == fresh, "{label}: another model than the file's ({report})");
                }
                let report = engine.swap(&[original(tensor)]).unwrap();
                assert_eq!(report.bytes(), ByteSize::ZERO, "{label}: a return moves nothing");
            }
            assert!(trace(&mut engine) == before, "{arch}, --manage {manage}: not what was loaded");
            // All together, and back.
            let all: Vec<Replacement> =
                tensors.iter().zip(&donors).map(|(tensor, donor)| from_file(tensor, donor)).collect();
            engine.swap(&all).unwrap();
            assert!(trace(&mut engine) != before, "{arch}, {manage}: the swap had no effect");
            let back: Vec<Replacement> = tensors.iter().map(|tensor| original(tensor)).collect();
            engine.swap(&back).unwrap();
            assert!(trace(&mut engine) == before, "{arch}, --manage {manage}: not what was loaded");
        }
    }
}
