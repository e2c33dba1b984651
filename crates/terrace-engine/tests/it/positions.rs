//! Models with a table of learned positions, of all architectures that have one by the tensors that
//! llama.cpp itself names: contexts end where the table does.

use crate::made::is_left_out;
use crate::reloading::{dir, load, options};
use std::ops::ControlFlow;
use std::path::Path;
use terrace_engine::options::{ContextOptions, EmbeddingOptions};
use terrace_engine::{EngineError, Mode, Options, StopReason};
use terrace_ggml::llama::{Pooling, Sampling};
use terrace_model::ModelFile;
use terrace_plan::Manage;
use terrace_testkit::released::{Released, architectures};

/// Rows of the tables.
const ROWS: usize = 128;

#[test]
fn contexts_end_where_tables_do() {
    let dir = dir();
    let has_table = |released: &Released| released.matrices().any(|name| name == ModelFile::POSITIONS);
    // Models of some others are not made (`architectures`).
    let of = |arch: &String| match !is_left_out(arch) || arch == "bert" {
        true => Released::new(arch, true).ok().filter(has_table),
        false => None,
    };
    let models: Vec<Released> = architectures().iter().filter_map(of).collect();
    let names: Vec<&str> = models.iter().map(Released::arch).collect();
    for known in ["gpt2", "starcoder", "bert"] {
        assert!(names.contains(&known), "{names:?}");
    }
    // Stock first: once Terrace is installed, no stock run is left in this process.
    for mode in [Mode::Stock { repack: false }, Mode::Terrace] {
        for released in &models {
            let path = dir.path().join(released.arch());
            released.write(&path, 1, None).unwrap();
            // Above the table; and below it, where llama.cpp rounds up to 256.
            for asked in [1024, 96] {
                check(&path, released.arch(), mode, asked);
            }
        }
    }
}

fn check(path: &Path, arch: &str, mode: Mode, asked: u32) {
    let place = format!("{arch} {asked} {mode:?}");
    let tokens: Vec<i32> = (1..=200).collect();
    let of = options(path, Manage::None);
    let mut engine = load(Options {
        mode,
        context: ContextOptions { ctx: Some(asked), ..of.context },
        embeddings: Some(EmbeddingOptions {
            embeddings: true,
            pooling: Some(Pooling::Mean),
            reranking: false,
        }),
        ..of
    });
    let most = engine.embedding_facts().unwrap().most;
    assert!(most <= ROWS, "{place}: {most}");
    engine.embed(&tokens[..most]).unwrap();
    let error = engine.embed(&tokens[..=most]).unwrap_err();
    assert!(matches!(error, EngineError::PromptTooLong { .. }), "{place}: {error}");
    if is_left_out(arch) {
        return;
    }
    let context = engine.context_size();
    assert!(context <= ROWS, "{place}: {context}");
    let mut session = engine.session();
    let sampling = Sampling { ignore_eos: true, ..Sampling::greedy() };
    let go_on = &mut |_: &[u8]| ControlFlow::Continue(());
    let error = engine.generate(&mut session, &tokens, None, &sampling, go_on).unwrap_err();
    assert!(matches!(error, EngineError::PromptTooLong { .. }), "{place}: {error}");
    let answer = engine.generate(&mut session, &tokens[..40], None, &sampling, go_on).unwrap();
    assert_eq!(answer.stop, StopReason::ContextFull, "{place}");
}
