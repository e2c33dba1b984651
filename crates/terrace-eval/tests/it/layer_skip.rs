//! Layer skip: for every architecture of the test kit, leaving out layers that add nothing changes
//! nothing.
//!
//! Each architecture needs its own process, because the stock reference has to be computed before
//! the Terrace device is registered.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use terrace_engine::options::{ComputeOptions, ContextOptions, MemoryOptions};
use terrace_engine::{Engine, EngineError, LayerSkip, Mode, Options};
use terrace_eval::{Calibrator, PerplexityOptions, perplexity};
use terrace_ggml::llama::Sampling;
use terrace_model::ByteSize;
use terrace_plan::{Budget, Manage};
use terrace_testkit::{Arch, Spec};

pub const TEXT: &str =
    "The terraces of the hill hold what the valley needs, and the water goes down from one to the next; ";

pub fn options(model: &Path) -> Options {
    Options {
        model: model.into(),
        memory: MemoryOptions { available_memory: Some(ByteSize::gib(8)), ..MemoryOptions::default() },
        context: ContextOptions { ctx: Some(256), ..ContextOptions::default() },
        compute: ComputeOptions { threads: Some(1), ..ComputeOptions::default() },
        ..Options::default()
    }
}

/// Experts are streamed, if there are any, with the smallest budget.
pub fn streamed(model: &Path) -> Options {
    let file = terrace_ggml::gguf::read(model).unwrap();
    let manage =
        if terrace_plan::model::expert_groups(&file).is_empty() { Manage::Ffn } else { Manage::Experts };
    let huge = ByteSize::gib(1 << 20);
    let ram_budget = Budget::Bytes(huge);
    let wishes = terrace_plan::Wishes {
        memory: MemoryOptions { stream: manage, ram_budget, ..MemoryOptions::default() },
        mapping: false,
        ..Default::default()
    };
    let machine = terrace_plan::MachineProfile::unmeasured("m", 2, huge, huge);
    let plan = terrace_plan::plan(&file, &machine, &wishes).unwrap();
    Options {
        memory: MemoryOptions {
            stream: manage,
            ram_budget: Budget::Bytes(plan.minimum),
            ..options(model).memory
        },
        ..options(model)
    }
}

/// Bits of the logits after a prompt of several graphs, and after single tokens that follow it.
fn logits(options: Options) -> Result<Vec<u32>, EngineError> {
    let mut engine = Engine::load(options, &mut |_| ControlFlow::Continue(()))?;
    let tokens = engine.tokenize(TEXT, true, false)?;
    let (mut all, mut session) = (Vec::new(), engine.session());
    for part in [&tokens[..40], &tokens[40..41], &tokens[41..42]] {
        engine
            .generate(&mut session, part, Some(0), &Sampling::greedy(), &mut |_| ControlFlow::Continue(()))?;
        let row = engine.logits().unwrap();
        assert!(row.iter().all(|l| l.is_finite()));
        all.extend(row.iter().map(|l| l.to_bits()));
    }
    Ok(all)
}

/// Writes a file that skips these layers.
fn skip_file(model: &Path, layers: &[u32]) -> PathBuf {
    let identity = terrace_model::identity::ModelIdentity::of(&terrace_ggml::gguf::read(model).unwrap());
    let measured = serde_json::json!({"perplexity": 1.0, "error": null, "chunks": 1, "context": 512});
    let file = serde_json::json!({
        "version": 1, "model": identity, "similarity": [], "threshold": 0.5, "skip": layers,
        "without": measured, "with": measured,
    });
    let name: Vec<String> = layers.iter().map(u32::to_string).collect();
    let path = model.with_extension(format!("skip-{}.json", name.join("-")));
    std::fs::write(&path, file.to_string()).unwrap();
    path
}

fn check(arch: Arch) {
    let dir = dir();
    let spec = Spec { layers: 5, silent: vec![1, 2], ..Spec::new(arch) };
    let model = terrace_testkit::write(&spec, dir.path().join("model.gguf")).unwrap();
    let expected = logits(Options { mode: Mode::Stock { repack: false }, ..options(&model) }).unwrap();
    for base in [streamed(&model), options(&model)] {
        let run = |layers: &[u32]| {
            logits(Options {
                compute: ComputeOptions {
                    layer_skip: Some(skip_file(&model, layers)),
                    ..base.clone().compute
                },
                ..base.clone()
            })
            .unwrap()
        };
        let name = format!("{} with --manage {}", arch.name(), base.memory.stream);
        assert!(run(&[]) == expected, "{name}: nothing skipped");
        assert!(run(&[1]) == expected, "{name}: a layer that adds nothing");
        assert!(run(&[1, 2]) == expected, "{name}: two of them");
        let far = run(&[3]);
        assert!(far != expected, "{name}: a layer that adds something");
        assert!(run(&[1, 2, 3]) == far, "{name}: all of them");
    }

    // Skipped layers are not read.
    let reads = |layers: &[u32]| {
        let options = Options {
            compute: ComputeOptions {
                layer_skip: Some(skip_file(&model, layers)),
                ..streamed(&model).compute
            },
            ..streamed(&model)
        };
        let mut engine = Engine::load(options, &mut |_| ControlFlow::Continue(())).unwrap();
        let tokens = engine.tokenize(TEXT, true, false).unwrap();
        let mut session = engine.session();
        engine
            .generate(&mut session, &tokens, Some(0), &Sampling::greedy(), &mut |_| ControlFlow::Continue(()))
            .unwrap();
        let stats = engine.store_stats().unwrap();
        stats.hits + stats.misses + stats.joined
    };
    let (some, all) = (reads(&[1, 2, 3]), reads(&[]));
    assert!(some < all, "{}: {some} and {all} uses", arch.name());
}

pub fn dir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

mod silent_layers_are_skipped_without_a_trace {
    terrace_testkit::each_architecture!(super::check);
}

#[test]
fn calibration_finds_the_layers_that_change_nothing() {
    let dir = dir();
    let spec = Spec { layers: 6, silent: vec![2, 4], ..Spec::new(Arch::Qwen3Moe) };
    let model = terrace_testkit::write(&spec, dir.path().join("model.gguf")).unwrap();
    let base =
        Options { context: ContextOptions { outputs: 256, ..streamed(&model).context }, ..streamed(&model) };
    let mut calibrator = Calibrator::load(base.clone(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(calibrator.engine().streamed_layers(), [0, 1, 2, 3, 4, 5]);
    let tokens = calibrator.engine().tokenize(&TEXT.repeat(12), true, false).unwrap();
    let chunks = PerplexityOptions { context: 128, chunks: Some(3) };
    let mut passes = Vec::new();
    let skip = calibrator
        .calibrate(&tokens, &chunks, 0.9999, &mut |pass, progress| {
            passes.push((pass, progress.done));
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(passes.len(), 6);
    assert_eq!(skip.skip, [2, 4]);
    assert_eq!(skip.similarity.len(), 6);
    for (layer, similarity) in skip.similarity.iter().enumerate() {
        match (layer, *similarity) {
            (0, None) => {}
            (2 | 4, Some(s)) => assert!((s - 1.0).abs() < 1e-9, "{layer}: {s}"),
            (_, Some(s)) => assert!(s > 0.0 && s < 0.9999, "{layer}: {s}"),
            (_, None) => panic!("nothing measured in layer {layer}"),
        }
    }
    // Skipping layers that add nothing costs nothing, and observing changes nothing.
    assert_eq!(skip.with, skip.without);
    let mut engine = Engine::load(base.clone(), &mut |_| ControlFlow::Continue(())).unwrap();
    let plain = perplexity(&mut engine, &tokens, &chunks, &mut |_| ControlFlow::Continue(())).unwrap();
    // The last layer computes fewer tokens here, possibly with another kernel of ggml.
    let ratio = plain.perplexity / skip.without.perplexity;
    assert!((ratio - 1.0).abs() < 1e-6, "{ratio}");

    // The file is read back unchanged, and accepted only for this model.
    let path = dir.path().join("skip.json");
    skip.write(&path).unwrap();
    let file = terrace_ggml::gguf::read(&model).unwrap();
    let again = LayerSkip::read(&path, &file).unwrap();
    assert_eq!((&again.model, &again.skip, again.threshold), (&skip.model, &skip.skip, skip.threshold));
    for (a, b) in again.similarity.iter().zip(&skip.similarity) {
        assert!((a.unwrap_or(0.0) - b.unwrap_or(0.0)).abs() < 1e-12, "{a:?} and {b:?}");
    }
    let other = terrace_testkit::write(&Spec::new(Arch::Qwen3Moe), dir.path().join("other.gguf")).unwrap();
    let error = Engine::load(
        Options {
            compute: ComputeOptions { layer_skip: Some(path.clone()), ..options(&other).compute },
            ..options(&other)
        },
        &mut |_| ControlFlow::Continue(()),
    )
    .err()
    .unwrap();
    assert!(error.to_string().contains("made for"), "{error}");

    // With a threshold that all layers pass, the first and the last are still not skipped.
    let skip = calibrator.calibrate(&tokens, &chunks, -1.0, &mut |_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!(skip.skip, [1, 2, 3, 4]);
    assert!(skip.with.perplexity != skip.without.perplexity);
}
