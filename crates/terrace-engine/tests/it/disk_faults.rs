//! Faults of the disk under a served model: only the answers that need the bytes fail.

use crate::reloading::{dir, options, write};
use crate::served::{PLAIN, ask, job, serve};
use std::ops::Range;
use std::path::Path;
use terrace_engine::options::TestingOptions;
use terrace_engine::serving::ServingOptions;
use terrace_engine::{EngineError, Options};
use terrace_plan::Manage;
use terrace_testkit::{Arch, Spec};

fn with_faults(model: &Path, faults: Option<String>) -> Options {
    let plain = options(model, Manage::All);
    Options { testing: TestingOptions { faults, ..plain.testing.clone() }, ..plain }
}

/// The bytes of a token's row in the table of embeddings, which streams row by row.
fn row(model: &Path, token: i32, vocabulary: usize) -> Range<u64> {
    let file = terrace_ggml::gguf::read(model).unwrap();
    let extent = file.tensor("token_embd.weight").unwrap().extent;
    let len = extent.len / vocabulary as u64;
    let from = extent.offset + u64::try_from(token).unwrap() * len;
    from..from + len
}

#[test]
fn a_place_that_is_never_readable_fails_only_the_answers_that_need_it() {
    let dir = dir();
    let model = write(&Spec::new(Arch::Qwen3Moe), dir.path().join("model.gguf"));
    let two = ServingOptions { slots: 2, ..PLAIN };
    let good = [5, 6, 7];
    let (golden, bad, range) = {
        let serving = serve(with_faults(&model, None), two);
        let golden = ask(&serving, job(&good, 6)).unwrap().answer().tokens;
        let vocabulary = serving.facts().vocabulary;
        let used = || good.iter().chain(&golden);
        // Direct reads are of whole sectors: no token of the good answer has its row nearby.
        let far = |a: &Range<u64>, b: &Range<u64>| a.end + 8192 < b.start || b.end + 8192 < a.start;
        let free = |token: &i32| {
            let range = row(&model, *token, vocabulary);
            used().all(|&other| far(&range, &row(&model, other, vocabulary)))
        };
        let bad = (0..i32::try_from(vocabulary).unwrap()).find(free).unwrap();
        (golden, bad, row(&model, bad, vocabulary))
    };
    let faults = format!("eio@bytes:{}..{}", range.start, range.end);
    let serving = serve(with_faults(&model, Some(faults)), two);
    for _ in 0..4 {
        let both = [ask(&serving, job(&[5, bad, 7], 6)), ask(&serving, job(&good, 6))];
        let [failed, answered] = both.map(|told| told.unwrap().all().end);
        let error = failed.unwrap_err();
        assert!(matches!(error, EngineError::Context(_)), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains("model.gguf") && text.contains("token_embd") && text.contains("error"),
            "{text}"
        );
        assert_eq!(answered.unwrap().tokens, golden);
    }
    assert_eq!(serving.status().totals.ended.failed, 4);
}
