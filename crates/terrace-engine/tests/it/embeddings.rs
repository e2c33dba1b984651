//! Embeddings: those of models whose weights stream are stock llama.cpp's, bit for bit.

use crate::budgets::{minimum, with_larger_types};
use crate::reloading::{dir, from_file, load, options, original, with, write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use terrace_engine::options::{ContextOptions, EmbeddingOptions, MemoryOptions};
use terrace_engine::{Engine, EngineError, Mode, Options, Unfit};
use terrace_ggml::llama::{Pooling, Sampling};
use terrace_model::ByteSize;
use terrace_plan::{Budget, Manage};
use terrace_testkit::released::Released;
use terrace_testkit::{Arch, Spec, WeightType};

/// A text of several graphs with these options, and one of a part of a graph.
const TEXTS: [&str; 2] = [
    "And God said, Let the waters under the heaven be gathered together unto one place, and let the dry land appear.",
    "In the beginning",
];

const POOLINGS: [Pooling; 4] = [Pooling::None, Pooling::Mean, Pooling::Cls, Pooling::Last];

fn bundled() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/tiny-moe-Q4_K.gguf")
}

/// Embeds with `pooling`; the least budget makes all that streams move.
fn embedding(model: &Path, manage: Manage, pooling: Option<Pooling>) -> Options {
    let of = options(model, manage);
    let ram_budget = match manage {
        Manage::None | Manage::Mapped => Budget::Auto,
        _ => Budget::Bytes(minimum(model, manage)),
    };
    Options {
        memory: MemoryOptions { ram_budget, ..of.memory },
        embeddings: Some(EmbeddingOptions { embeddings: true, pooling, reranking: false }),
        ..of
    }
}

fn stock(options: Options) -> Options {
    let memory = MemoryOptions { ram_budget: Budget::Auto, ..options.memory };
    Options { mode: Mode::Stock { repack: false }, memory, ..options }
}

fn embed(engine: &mut Engine, text: &str) -> Vec<f32> {
    let tokens = engine.tokenize(text, true, false).unwrap();
    let values = engine.embed(&tokens).unwrap();
    assert!(values.iter().all(|value| value.is_finite()) && values.iter().any(|&value| value != 0.0));
    values
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The bits of what a model makes of the texts, one by one and in turn with an answer.
fn trace(engine: &mut Engine) -> Vec<Vec<u32>> {
    let mut all: Vec<_> = TEXTS.iter().map(|text| bits(&embed(engine, text))).collect();
    if engine.embedding_facts().is_some_and(|facts| !facts.encoder) {
        let tokens = engine.tokenize(TEXTS[1], true, false).unwrap();
        let mut session = engine.session();
        let go_on = &mut |_: &[u8]| ControlFlow::Continue(());
        let mut answer = engine.generate(&mut session, &tokens, Some(4), &Sampling::greedy(), go_on).unwrap();
        let again = bits(&embed(engine, TEXTS[0]));
        assert_eq!(again, all[0], "an answer in between changes nothing");
        let more = engine.generate(&mut session, &tokens[..1], Some(4), &Sampling::greedy(), go_on).unwrap();
        answer.tokens.extend(more.tokens);
        all.push(answer.tokens.into_iter().map(i32::cast_unsigned).collect());
    }
    all
}

/// Compares what stock llama.cpp makes of a model with what Terrace makes of it, with all of these
/// placements.
fn assert_exact(model: &Path, poolings: &[Option<Pooling>], placements: &[Manage]) {
    let small = |options: Options| {
        let context = ContextOptions { ctx: Some(128), ..options.context };
        Options { context, ..options }
    };
    // Stock first: once Terrace is installed, no stock run is left in this process.
    let expected: Vec<_> = poolings
        .iter()
        .map(|&pooling| trace(&mut load(small(stock(embedding(model, Manage::None, pooling))))))
        .collect();
    for &manage in placements {
        for (&pooling, expected) in poolings.iter().zip(&expected) {
            let mut engine = load(small(embedding(model, manage, pooling)));
            assert_eq!(&trace(&mut engine), expected, "{}: {pooling:?}, {manage}", model.display());
        }
    }
}

#[test]
fn of_the_bundled_model_are_exact() {
    let poolings = POOLINGS.map(Some);
    assert_exact(&bundled(), &poolings, &[Manage::Experts, Manage::All, Manage::None, Manage::Mapped]);
}

#[test]
fn of_models_with_experts_are_exact() {
    let dir = dir();
    let model = write(&Spec::new(Arch::Qwen3Moe), dir.path().join("model.gguf"));
    assert_exact(&model, &[Some(Pooling::Mean), None], &[Manage::Experts, Manage::All]);
}

/// Models that see texts from both sides.
const ENCODERS: [&str; 9] = [
    "bert",
    "nomic-bert",
    "nomic-bert-moe",
    "jina-bert-v2",
    "jina-bert-v3",
    "modern-bert",
    "neo-bert",
    "eurobert",
    "gemma-embedding",
];

#[test]
fn of_encoders_are_exact() {
    let dir = dir();
    for arch in ENCODERS {
        let model = dir.path().join(format!("{arch}.gguf"));
        Released::new(arch, true).unwrap().write(&model, 1, None).unwrap();
    }
    let paths = ENCODERS.map(|arch| dir.path().join(format!("{arch}.gguf")));
    let poolings = [None, Some(Pooling::Cls), Some(Pooling::None)];
    let expected: Vec<_> = paths
        .iter()
        .map(|model| poolings.map(|pooling| trace(&mut load(stock(embedding(model, Manage::None, pooling))))))
        .collect();
    for (model, expected) in paths.iter().zip(&expected) {
        for manage in [Manage::All, Manage::None] {
            for (pooling, expected) in poolings.iter().zip(expected) {
                let mut engine = load(embedding(model, manage, *pooling));
                let facts = engine.embedding_facts().unwrap();
                assert!(facts.encoder, "{}", model.display());
                assert_eq!(facts.pooling, pooling.unwrap_or(Pooling::Mean));
                assert_eq!(&trace(&mut engine), expected, "{}: {pooling:?}, {manage}", model.display());
            }
        }
    }
}

#[test]
fn pooled_embeddings_are_those_of_tokens() {
    let rows = embed(&mut load(embedding(&bundled(), Manage::None, Some(Pooling::None))), TEXTS[0]);
    let of = |pooling| {
        let mut engine = load(embedding(&bundled(), Manage::None, Some(pooling)));
        let width = engine.embedding_facts().unwrap().width;
        (embed(&mut engine, TEXTS[0]), width)
    };
    let (last, width) = of(Pooling::Last);
    assert!(rows.len() / width > 16 && rows.len().is_multiple_of(width), "{} of {width}", rows.len());
    assert_eq!(bits(&last), bits(&rows[rows.len() - width..]));
    assert_eq!(bits(&of(Pooling::Cls).0), bits(&rows[..width]));
    let count = (rows.len() / width) as f32;
    for (place, mean) in of(Pooling::Mean).0.into_iter().enumerate() {
        let expected: f32 = rows.iter().skip(place).step_by(width).sum::<f32>() / count;
        assert!((mean - expected).abs() < 1e-4, "{place}: {mean} is not {expected}");
    }
}

/// A text of more tokens than one graph has is the text in parts.
#[test]
fn long_texts_are_computed_in_parts() {
    let text = TEXTS[0].repeat(40);
    let context = |options: Options| {
        let context = ContextOptions { ctx: Some(2048), ..options.context };
        Options { context, ..options }
    };
    let mut rows = load(context(embedding(&bundled(), Manage::Experts, Some(Pooling::None))));
    let tokens = rows.tokenize(&text, true, false).unwrap();
    assert!(tokens.len() > 600 && tokens.len() <= 2048, "{}", tokens.len());
    let rows = rows.embed(&tokens).unwrap();
    let mut mean = load(context(embedding(&bundled(), Manage::Experts, Some(Pooling::Mean))));
    let mean = mean.embed(&tokens).unwrap();
    let width = mean.len();
    assert_eq!(rows.len(), tokens.len() * width);
    for (place, mean) in mean.into_iter().enumerate() {
        let sum: f64 = rows.iter().skip(place).step_by(width).map(|&value| f64::from(value)).sum();
        let expected = (sum / tokens.len() as f64) as f32;
        assert!((mean - expected).abs() < 1e-4, "{place}: {mean} is not {expected}");
    }
    let mut last = load(context(embedding(&bundled(), Manage::Experts, Some(Pooling::Last))));
    assert_eq!(bits(&last.embed(&tokens).unwrap()), bits(&rows[rows.len() - width..]));
    let too_many = tokens.repeat(4);
    let error = last.embed(&too_many).unwrap_err();
    assert!(matches!(error, EngineError::PromptTooLong { context: 2048, .. }), "{error}");
}

#[test]
fn replaced_tensors_count() {
    let dir = dir();
    let spec = Spec::new(Arch::Qwen3Moe);
    let tensor = "blk.0.attn_output.weight";
    let model = write(&spec, dir.path().join("model.gguf"));
    let other = write(&with(&spec, tensor, WeightType::Q4_0), dir.path().join("other.gguf"));
    let then = bits(&embed(&mut load(stock(embedding(&other, Manage::None, None))), TEXTS[0]));
    let of = options(&model, Manage::Experts);
    let embeddings = Some(EmbeddingOptions::default());
    // Slots lend what the context takes.
    let ram_budget = Budget::Bytes(with_larger_types(&model, Manage::Experts) + ByteSize::mib(16));
    let memory = MemoryOptions { ram_budget, ..of.memory };
    let mut engine = load(Options { embeddings, memory, ..of });
    let before = bits(&embed(&mut engine, TEXTS[0]));
    assert_ne!(before, then);
    engine.swap(&[from_file(tensor, &other)]).unwrap();
    assert_eq!(bits(&embed(&mut engine, TEXTS[0])), then);
    engine.swap(&[original(tensor)]).unwrap();
    assert_eq!(bits(&embed(&mut engine, TEXTS[0])), before);
}

/// The context takes its memory from slots whose budget is automatic.
#[test]
fn memory_comes_out_of_an_automatic_budget() {
    let dir = dir();
    let model = write(&Spec::new(Arch::Qwen3Moe), dir.path().join("model.gguf"));
    let of = options(&model, Manage::Experts);
    let memory = MemoryOptions { ram_budget: Budget::Auto, ..of.memory };
    let embeddings = Some(EmbeddingOptions::default());
    let mut engine = load(Options { embeddings, memory, ..of });
    let before = engine.budget_now().unwrap();
    embed(&mut engine, TEXTS[0]);
    let after = engine.budget_now().unwrap();
    assert_eq!(after, before, "what is lent still belongs to the budget");
    let capacity = engine.store_stats().unwrap().capacity;
    assert!(capacity > ByteSize::ZERO);
    drop(engine);
    let mut engine = load(Options { embeddings: None, ..options(&model, Manage::Experts) });
    let tokens = engine.tokenize(TEXTS[0], true, false).unwrap();
    let error = engine.embed(&tokens).unwrap_err();
    assert!(matches!(error, EngineError::Unfit(Unfit::NoEmbeddings)), "{error}");
}

#[test]
fn scores_need_a_classification_head() {
    let options = embedding(&bundled(), Manage::None, Some(Pooling::Rank));
    let error = Engine::load(options, &mut |_| ControlFlow::Continue(())).err().unwrap();
    assert!(matches!(error, EngineError::Unfit(Unfit::NoClassifier)), "{error}");
}

#[test]
fn scores_of_rankers_are_exact() {
    let dir = dir();
    let model = dir.path().join("bert.gguf");
    Released::new("bert", false).unwrap().write(&model, 1, None).unwrap();
    let rank = Some(Pooling::Rank);
    let expected = trace(&mut load(stock(embedding(&model, Manage::None, rank))));
    assert!(expected.iter().all(|score| score.len() == 1), "{expected:?}");
    assert_ne!(expected[0], expected[1]);
    for manage in [Manage::All, Manage::None] {
        assert_eq!(trace(&mut load(embedding(&model, manage, rank))), expected, "{manage}");
    }
}
