//! Lossy routing, for every architecture of the test kit with experts: a bonus of nearly nothing changes
//! no bit, a large one changes what is read, and everything that is recognised is counted.

use crate::layer_skip::{TEXT, dir, options};
use std::ops::ControlFlow;
use std::path::Path;
use std::path::PathBuf;
use terrace_engine::LossySource;
use terrace_engine::{Engine, EngineError, Logits, LossySettings, NoLoss, Options, Unfit};
use terrace_eval::{PerplexityOptions, lossy_base, lossy_cost};
use terrace_ggml::quantize::WeightType;
use terrace_model::ByteSize;
use terrace_plan::Budget;
use terrace_testkit::{Arch, Spec};

fn settings(text: &str) -> LossySettings {
    text.parse().unwrap()
}

fn load(options: Options) -> Engine {
    Engine::load(options, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// About a third of the experts is in memory.
fn streamed(model: &Path) -> Options {
    let third = terrace_ggml::gguf::read(model).unwrap().size().bytes() / 3;
    let mut options = crate::layer_skip::streamed(model);
    let Budget::Bytes(least) = options.memory.ram_budget else { panic!("a budget in bytes") };
    options.memory.ram_budget = Budget::Bytes(least + ByteSize(third));
    options
}

/// As generation does: token by token.
fn one_by_one(options: Options) -> Options {
    let mut options = options;
    (options.context.batch, options.context.ubatch, options.context.outputs) = (1, Some(1), 1);
    options
}

/// Bits of the logits of a text that is evaluated token by token, and the bytes read for it.
fn evaluate(engine: &mut Engine) -> (Vec<u32>, u64) {
    let tokens = engine.tokenize(TEXT, true, false).unwrap();
    let before = engine.store_stats().unwrap().bytes_read.bytes();
    let mut bits = Vec::new();
    Logits::new(engine)
        .of_text(&tokens[..40], 0, &mut |rows| {
            assert!(rows.rows.iter().all(|logit| logit.is_finite()));
            bits.extend(rows.rows.iter().map(|logit| logit.to_bits()));
            Ok::<(), EngineError>(())
        })
        .unwrap();
    (bits, engine.store_stats().unwrap().bytes_read.bytes() - before)
}

/// Blocks that have been asked for.
fn blocks(engine: &Engine) -> u64 {
    let stats = engine.store_stats().unwrap();
    stats.hits + stats.misses + stats.joined
}

fn check(arch: Arch) {
    let dir = dir();
    let spec = Spec::new(arch);
    let model = terrace_testkit::write(&spec, dir.path().join("model.gguf")).unwrap();
    let mut engine = load(one_by_one(streamed(&model)));
    let (exact, read) = evaluate(&mut engine);
    assert_eq!(engine.lossy_counts().pairs, 0, "nothing is counted without loss");
    let mut lose = |text: &str| {
        engine.lose(&settings(text)).unwrap();
        let before = engine.lossy_counts();
        let (bits, read) = evaluate(&mut engine);
        (bits, read, engine.lossy_counts().since(before))
    };

    let (bits, _, counts) = lose("prior=0.000001");
    assert!(bits == exact, "{}: a bonus of nearly nothing", arch.name());
    assert!(counts.pairs > 0 && counts.substituted == 0, "{}: {counts:?}", arch.name());
    let pairs = counts.pairs;

    let (bits, less, counts) = lose("prior=1,keep=0");
    assert_eq!(counts.pairs, pairs, "{}: the same nodes", arch.name());
    assert!(counts.substituted > 0 && bits != exact, "{}: {counts:?}", arch.name());
    assert!(less < read, "{}: {less} and {read} bytes", arch.name());

    let (bits, less, counts) = lose("drop=16");
    // Of one expert per token, none can be left out.
    if pairs > 40 * u64::from(spec.layers) {
        assert!(counts.dropped > 0 && bits != exact, "{}: {counts:?}", arch.name());
        assert!(less < read, "{}: {less} and {read} bytes", arch.name());
    }
    assert_eq!(counts.substituted, 0);

    engine.lose(&LossySettings::default()).unwrap();
    assert!(evaluate(&mut engine).0 == exact, "{}: off again", arch.name());
}

mod experts_in_memory_are_preferred {
    terrace_testkit::each_moe_architecture!(super::check);
}

/// Where next to nothing may be lost, all bits are those of a run without loss, although some tokens are computed
/// twice.
fn check_budget(arch: Arch) {
    let dir = dir();
    let model = terrace_testkit::write(&Spec::new(arch), dir.path().join("model.gguf")).unwrap();
    let mut engine = load(one_by_one(streamed(&model)));
    let budget = settings("kld=0.000000001");
    let (exact, _) = evaluate(&mut engine);
    assert!(engine.budget_spent().is_none());
    engine.lose(&budget).unwrap();
    let (bits, _) = evaluate(&mut engine);
    assert!(bits == exact, "{}: next to nothing", arch.name());
    let spent = engine.budget_spent().unwrap();
    assert_eq!((spent.tokens, spent.exact_passes), (40, 10), "{}", arch.name());
    assert_eq!(spent.spent, 0.0, "{}", arch.name());

    engine.lose(&settings("kld=10")).unwrap();
    let (bits, _) = evaluate(&mut engine);
    let spent = engine.budget_spent().unwrap();
    assert!(spent.drop > 0.0 && spent.prior > 0.0, "{}: {spent:?}", arch.name());
    assert_eq!(bits == exact, spent.spent == 0.0, "{}: {spent:?}", arch.name());
    engine.lose(&LossySettings::default()).unwrap();
    assert!(evaluate(&mut engine).0 == exact, "{}: off again", arch.name());
}

mod budgets_are_measured {
    terrace_testkit::each_moe_architecture!(super::check_budget);
}

/// Prompts are computed in passes of many tokens, which share their reads.
#[test]
fn passes_of_several_tokens_are_exact() {
    let dir = dir();
    let model = terrace_testkit::write(&Spec::new(Arch::Qwen3Moe), dir.path().join("model.gguf")).unwrap();
    let mut options = streamed(&model);
    options.context.outputs = 64;
    let mut engine = load(options);
    let (exact, _) = evaluate(&mut engine);
    engine.lose(&settings("prior=1,keep=0,drop=1")).unwrap();
    assert!(evaluate(&mut engine).0 == exact);
    assert_eq!(engine.lossy_counts().pairs, 0);
}

#[test]
fn fewer_experts_are_used_where_asked_for() {
    let dir = dir();
    let spec = Spec::new(Arch::Qwen3Moe);
    let model = terrace_testkit::write(&spec, dir.path().join("model.gguf")).unwrap();
    let with = |text: &str, base: Options| {
        let mut options = one_by_one(base);
        options.compute.lossy = Some(terrace_engine::LossySource::Settings(settings(text)));
        Engine::load(options, &mut |_| ControlFlow::Continue(()))
    };
    let top_k = spec.top_k;
    let (exact, read) = evaluate(&mut load(one_by_one(streamed(&model))));
    let (same, _) = evaluate(&mut with(&format!("experts={top_k}"), streamed(&model)).unwrap());
    assert!(same == exact);
    let mut fewer = with("experts=1", streamed(&model)).unwrap();
    let (bits, less) = evaluate(&mut fewer);
    assert!(bits != exact && less < read, "{less} and {read} bytes");
    assert_eq!(fewer.plan().lossy.as_ref().unwrap().settings.experts, Some(1));
    // Where nothing streams, the choice is llama.cpp's alone.
    let mut resident = with("experts=1", options(&model)).unwrap();
    assert!(evaluate(&mut resident).0 == bits);
    let other = resident.lose(&settings("experts=2")).unwrap_err();
    assert!(matches!(other, EngineError::Unfit(Unfit::Lossy(NoLoss::Loaded))), "{other}");

    let refused = |text: &str, options: Options| match with(text, options).err().unwrap() {
        EngineError::Unfit(Unfit::Lossy(reason)) => reason,
        other => panic!("{other}"),
    };
    let more = refused(&format!("experts={}", top_k + 1), streamed(&model));
    assert!(matches!(more, NoLoss::Experts { has, .. } if has == top_k), "{more}");
    assert!(matches!(refused("skip=0", streamed(&model)), NoLoss::Layer { layer: 0, .. }));
    let dense = terrace_testkit::write(&Spec::new(Arch::Llama), dir.path().join("dense.gguf")).unwrap();
    assert!(matches!(refused("prior=0.1", options(&dense)), NoLoss::NoExperts));
}

#[test]
fn costs_are_those_of_the_predictions() {
    let dir = dir();
    let model = terrace_testkit::write(&Spec::new(Arch::Qwen3Moe), dir.path().join("model.gguf")).unwrap();
    let mut engine = load(one_by_one(streamed(&model)));
    let tokens = engine.tokenize(&TEXT.repeat(6), true, false).unwrap();
    let chunks = PerplexityOptions { context: 64, chunks: Some(2) };
    let path = dir.path().join("base");
    let go_on = ControlFlow::Continue(());
    let mut base = lossy_base(&mut engine, &tokens, &chunks, &path, &mut |_| go_on).unwrap();
    let mut cost = |text: &str| {
        lossy_cost(&mut engine, &settings(text), &tokens, &chunks, &mut base, &mut |_| go_on).unwrap()
    };
    let none = cost("prior=0.000001");
    // Up to the 16 bits of the base's file.
    assert!(none.kld.abs() < 1e-3 && none.same_top > 0.98 && none.substituted == 0.0, "{none:?}");
    assert!((none.perplexity[1] / none.perplexity[0] - 1.0).abs() < 1e-4, "{none:?}");
    let all = cost("prior=1,keep=0");
    assert!(all.kld > none.kld && all.substituted > 0.0 && all.dropped == 0.0, "{all:?}");
    assert!(all.reads().unwrap() < none.reads().unwrap(), "{all:?} and {none:?}");
    assert_eq!((all.tokens, all.scored), (128, 62));
}

/// A model with experts of 16 bits, and the same one with experts of fewer.
fn full_and_low(arch: Arch, dir: &Path) -> [PathBuf; 2] {
    [("full.gguf", WeightType::F16), ("low.gguf", WeightType::Q2_K)].map(|(name, expert_type)| {
        terrace_testkit::write(&Spec { expert_type, ..Spec::new(arch) }, dir.join(name)).unwrap()
    })
}

/// A model whose experts may be read from a second file, by these settings.
fn with_low(model: &Path, low: &Path, more: &str) -> Result<Engine, EngineError> {
    let mut options = one_by_one(streamed(model));
    options.compute.lossy = Some(LossySource::Settings(settings(&format!("low={}{more}", low.display()))));
    Engine::load(options, &mut |_| ControlFlow::Continue(()))
}

fn check_low(arch: Arch) {
    let dir = dir();
    let [full, low] = full_and_low(arch, dir.path());
    let mut engine = load(one_by_one(streamed(&full)));
    let (exact, read) = evaluate(&mut engine);
    let asked = blocks(&engine);
    drop(engine);
    let (of_low, _) = evaluate(&mut load(one_by_one(streamed(&low))));
    assert!(exact != of_low);

    // Nothing is in a slot at first, so nothing ever comes in full.
    let mut engine = with_low(&full, &low, ",low-below=all,low-keep=0").unwrap();
    let (bits, less) = evaluate(&mut engine);
    let counts = engine.lossy_counts();
    assert!(counts.low > 0 && counts.low == counts.pairs, "{}: {counts:?}", arch.name());
    assert!(bits == of_low, "{}: the bits of the second file's model", arch.name());
    assert!(less < read / 2, "{}: {less} and {read} bytes", arch.name());

    let mut engine = with_low(&full, &low, ",low-below=0").unwrap();
    let (bits, same) = evaluate(&mut engine);
    assert!(bits == exact && engine.lossy_counts().pairs == 0, "{}: off", arch.name());
    assert!(same.abs_diff(read) < read / 20, "{}: {same} and {read} bytes", arch.name());
    // Other blocks may be evicted, but the same ones are asked for.
    assert_eq!(blocks(&engine), asked, "{}: nothing of the second file", arch.name());
    let mut lose = |more: &str| {
        engine.lose(&settings(&format!("low={}{more}", low.display()))).unwrap();
        let before = engine.lossy_counts();
        let (bits, read) = evaluate(&mut engine);
        let stats = engine.store_stats().unwrap();
        assert!(stats.resident <= stats.capacity, "{stats:?}");
        (bits, read, engine.lossy_counts().since(before))
    };
    let (bits, _, counts) = lose(",low-below=0.000000000000001");
    assert!(bits == exact && counts.low == 0 && counts.pairs > 0, "{}: never: {counts:?}", arch.name());
    let (bits, less, counts) = lose(",low-below=all");
    assert!(counts.low > 0 && counts.low < counts.pairs && bits != exact, "{}: {counts:?}", arch.name());
    assert!(less < read, "{}: {less} and {read} bytes", arch.name());
    let (_, _, counts) = lose(",prior=0.3,drop=0.5");
    assert!(counts.substituted > 0 && counts.low > 0, "{}: {counts:?}", arch.name());
    engine.lose(&LossySettings::default()).unwrap();
    assert!(evaluate(&mut engine).0 == exact, "{}: off again", arch.name());
}

mod experts_of_little_weight_are_read_in_fewer_bits {
    terrace_testkit::each_moe_architecture!(super::check_low);
}

/// A second file that cannot be read any more costs speed, and no token.
#[test]
fn what_cannot_be_read_in_fewer_bits_is_read_in_full() {
    let dir = dir();
    let [full, low] = full_and_low(Arch::Qwen3Moe, dir.path());
    let (exact, _) = evaluate(&mut load(one_by_one(streamed(&full))));
    let mut engine = with_low(&full, &low, ",low-below=all,low-keep=0").unwrap();
    std::fs::File::options().write(true).open(&low).unwrap().set_len(4096).unwrap();
    assert!(evaluate(&mut engine).0 == exact);
    assert_eq!(engine.lossy_counts().low, 0);
    drop(engine);
    let short = with_low(&full, &low, "").err().unwrap();
    assert!(short.to_string().contains("low.gguf"), "{short}");
}

#[test]
fn a_second_file_of_another_model_is_refused() {
    let dir = dir();
    let [full, low] = full_and_low(Arch::Qwen3Moe, dir.path());
    let write = |spec: Spec, name: &str| terrace_testkit::write(&spec, dir.path().join(name)).unwrap();
    let refused = |model: &Path, low: &Path| match with_low(model, low, "").err().unwrap() {
        EngineError::Unfit(Unfit::Lossy(NoLoss::Unlike { reason, .. })) => reason,
        other => panic!("{other}"),
    };
    assert!(refused(&low, &full).contains("not smaller"));
    assert!(refused(&full, &full).contains("not smaller"));
    let other = write(Spec::new(Arch::Mixtral), "other.gguf");
    assert!(refused(&full, &other).contains("architecture"));
    let fewer =
        write(Spec { expert_type: WeightType::Q2_K, experts: 4, ..Spec::new(Arch::Qwen3Moe) }, "fewer.gguf");
    assert!(refused(&full, &fewer).contains("another shape"));
    let shallow =
        write(Spec { expert_type: WeightType::Q2_K, layers: 2, ..Spec::new(Arch::Qwen3Moe) }, "shallow.gguf");
    assert!(refused(&full, &shallow).contains("has no blk."));
    let mut engine = with_low(&full, &low, "").unwrap();
    let error = engine.lose(&settings("low=other.gguf")).unwrap_err();
    assert!(matches!(error, EngineError::Unfit(Unfit::Lossy(NoLoss::LowLoaded))), "{error}");
}
