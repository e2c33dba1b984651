//! Adapters over weights that stream, and in a server: what is computed is what stock llama.cpp computes
//! with the same adapters.

use crate::budgets::minimum;
use crate::reloading::{Trace, dir, load, options, trace, write};
use std::path::{Path, PathBuf};
use terrace_engine::options::{AdapterOption, MemoryOptions};
use terrace_engine::{Engine, EngineError, FileError, FileRole, Mode, Options, Unfit};
use terrace_model::ByteSize;
use terrace_plan::{Budget, Manage};
use terrace_testkit::{AdapterSpec, Arch, Spec, write_adapter};

/// The weights of a model that the tests change: of all kinds that it has.
fn weights(model: &Path) -> Vec<String> {
    let file = terrace_ggml::gguf::read(model).unwrap();
    let roles =
        ["attn_q", "attn_output", "ffn_gate", "ffn_down", "ffn_gate_inp", "ffn_up_exps", "ffn_down_exps"];
    let wanted = |name: &str| {
        let of_layer = name.strip_prefix("blk.1.").and_then(|name| name.strip_suffix(".weight"));
        name == "token_embd.weight" || of_layer.is_some_and(|role| roles.contains(&role))
    };
    let names = file.tensors.iter().map(|tensor| tensor.name.clone());
    names.filter(|name| wanted(name)).collect()
}

fn adapter(model: &Path, seed: u64, weights: &[impl AsRef<str>], name: &str) -> AdapterOption {
    let weights: Vec<&str> = weights.iter().map(AsRef::as_ref).collect();
    let spec = AdapterSpec { seed, weights: &weights, ..AdapterSpec::default() };
    let path = write_adapter(&spec, model, model.with_file_name(name)).unwrap();
    AdapterOption { path, scale: 1.0 }
}

fn stock(options: Options) -> Options {
    let memory = MemoryOptions { ram_budget: Budget::Auto, ..options.memory };
    Options { mode: Mode::Stock { repack: false }, memory, ..options }
}

fn traced(options: &Options) -> Trace {
    trace(&mut load(options.clone()))
}

#[test]
fn adapters_of_streamed_weights_compute_what_stock_llama_cpp_computes() {
    for arch in [Arch::Llama, Arch::Qwen3Moe, Arch::Deepseek2, Arch::Gemma4, Arch::Qwen3Next] {
        let dir = dir();
        let model = write(&Spec::new(arch), dir.path().join("model.gguf"));
        let weights = weights(&model);
        assert!(weights.len() > 2, "{arch}: {weights:?}");
        // Of a weight in both, llama.cpp does not say which is added first.
        let (one, other) = weights.split_at(weights.len() / 2);
        let adapters = vec![
            AdapterOption { scale: 0.5, ..adapter(&model, 1, one, "one.gguf") },
            adapter(&model, 3, other, "other.gguf"),
        ];
        let with = |of: Options| Options { adapters: adapters.clone(), ..of };
        let plain = stock(options(&model, Manage::None));
        let expected = traced(&with(plain.clone()));
        assert!(expected != traced(&plain), "{arch}: the adapters change nothing");
        let bytes: ByteSize = terrace_ggml::gguf::read(&adapters[0].path).unwrap().size()
            + terrace_ggml::gguf::read(&adapters[1].path).unwrap().size();
        for manage in [Manage::None, Manage::Mapped, Manage::Ffn, Manage::All, Manage::Experts] {
            if manage == Manage::Experts && !arch.is_moe() {
                continue;
            }
            let of = options(&model, manage);
            let ram_budget = match manage {
                Manage::None | Manage::Mapped => Budget::Auto,
                _ => Budget::Bytes(minimum(&model, manage) + bytes),
            };
            let memory = MemoryOptions { ram_budget, ..of.memory };
            let of = with(Options { memory, ..of });
            let mut engine = load(of.clone());
            assert_eq!(engine.adapters().len(), 2);
            assert_eq!(engine.adapters().iter().map(|facts| facts.bytes).sum::<ByteSize>(), bytes);
            assert_eq!(trace(&mut engine), expected, "{arch}, {manage}");
            if let Budget::Bytes(budget) = ram_budget {
                // They are counted.
                assert!(engine.plan().placement.as_ref().unwrap().budget + bytes <= budget);
                drop(engine);
                let ram_budget = Budget::Bytes(budget.saturating_sub(ByteSize(1)));
                let memory = MemoryOptions { ram_budget, ..of.memory };
                let error = refusal(Options { memory, ..of });
                let told = format!("{error}");
                assert!(matches!(&error, EngineError::Unfit(Unfit::Plan(_))), "{told}");
                assert!(told.contains(&budget.to_string()), "{told}");
            }
        }
    }
}

fn refusal(options: Options) -> EngineError {
    terrace_testkit::needs_own_process();
    let loaded = Engine::load(options, &mut |_| std::ops::ControlFlow::Continue(()));
    loaded.err().expect("a refusal")
}

#[test]
fn files_that_are_no_adapters_of_the_model_are_refused_in_one_line() {
    let dir = dir();
    let spec = Spec::new(Arch::Qwen3Moe);
    let model = write(&spec, dir.path().join("model.gguf"));
    let weights: Vec<String> = weights(&model);
    let names: Vec<&str> = weights.iter().map(String::as_str).collect();
    let good = AdapterSpec { weights: &names, ..AdapterSpec::default() };
    let made =
        |spec: &AdapterSpec<'_>, of: &Path| write_adapter(spec, of, dir.path().join("adapter.gguf")).unwrap();
    let refused = |path: PathBuf| {
        let adapters = vec![AdapterOption { path, scale: 1.0 }];
        let error = refusal(Options { adapters, ..options(&model, Manage::Experts) });
        let text = error.to_string();
        assert_eq!(text.lines().count(), 1, "{text}");
        (text, matches!(error, EngineError::File(FileError { role: FileRole::Adapter, .. })))
    };
    let with = |texts: &[(&str, &str)]| refused(made(&AdapterSpec { texts, ..good }, &model));
    for (texts, part) in [
        ([("general.type", "model")], "is not an adapter (general.type is model)"),
        ([("adapter.type", "ia3")], "is not a LoRA adapter (adapter.type is ia3)"),
        ([("general.architecture", "llama")], "architecture llama, and the model is qwen3moe"),
        ([("adapter.alora.invocation_tokens", "x")], "aLoRA"),
    ] {
        let (text, is_of_role) = with(&texts);
        assert!(text.contains(part) && is_of_role, "{text}");
    }
    // Of models with other shapes: wider, with other experts, with another vocabulary.
    for (number, other) in [
        Spec { embd: 2 * spec.embd, ..spec.clone() },
        Spec { experts: spec.experts + 4, ..spec.clone() },
        Spec { vocab: spec.vocab + 32, ..spec.clone() },
    ]
    .into_iter()
    .enumerate()
    {
        let other = write(&other, dir.path().join(format!("other{number}.gguf")));
        let (text, is_of_role) = refused(made(&good, &other));
        assert!(text.contains("do not fit") && is_of_role, "{text}");
    }
    // Of a model with more layers.
    let deeper = write(&Spec { layers: spec.layers + 1, ..spec.clone() }, dir.path().join("deeper.gguf"));
    let last = format!("blk.{}.attn_q.weight", spec.layers);
    let (text, _) = refused(made(&AdapterSpec { weights: &[&last], ..good }, &deeper));
    assert!(text.contains("which the model does not have"), "{text}");
    let (text, _) = refused(made(&AdapterSpec { weights: &[], ..good }, &model));
    assert!(text.contains("has no tensors"), "{text}");
    // The model itself, no file, one that ends early, and one of no known form.
    assert!(refused(model.clone()).0.contains("is not an adapter"));
    assert!(refused(dir.path().join("missing.gguf")).0.contains("no such file"));
    let whole = std::fs::read(made(&good, &model)).unwrap();
    for (bytes, name) in
        [(&whole[..whole.len() - 64], "short.gguf"), (&b"GGUF"[..], "head.gguf"), (b"text", "text.gguf")]
    {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        refused(path);
    }
    // Adapters that do not leave room for weights.
    let of = options(&model, Manage::Experts);
    let memory = MemoryOptions { ram_budget: Budget::Bytes(ByteSize(4096)), ..of.memory };
    let adapters = vec![AdapterOption { path: made(&good, &model), scale: 1.0 }];
    let error = refusal(Options { memory, adapters, ..of });
    assert!(matches!(error, EngineError::Unfit(Unfit::AdaptersTooLarge { .. })), "{error}");
}
