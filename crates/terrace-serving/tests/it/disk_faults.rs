//! Faults of the disk under a served model: only the answers that need the bytes fail.

use crate::reloading::{dir, options, write};
use crate::served::{Heard, PLAIN, ask, job, serve};
use std::path::Path;
use terrace_engine::options::{IoOptions, TestingOptions};
use terrace_engine::{EngineError, Options};
use terrace_plan::Manage;
use terrace_serving::{Serving, ServingOptions, SharePasses};
use terrace_store::UserDirs;
use terrace_testkit::{Arch, Spec};

const TENSOR: &str = "blk.1.ffn_up_exps.weight";

fn with_faults(model: &Path, faults: Option<String>) -> Options {
    let plain = options(model, Manage::Experts);
    Options { testing: TestingOptions { inject_fault: faults, ..plain.testing.clone() }, ..plain }
}

const TWO: ServingOptions = ServingOptions { slots: 2, ..PLAIN };

/// Two jobs at the same time: one of few tokens, and one of many, which needs more experts.
fn both(serving: &Serving) -> [Heard; 2] {
    let jobs = [job(&[5, 6], 1), job(&[7, 30, 50, 60], 12)];
    jobs.map(|job| ask(serving, job).unwrap()).map(|told| told.all())
}

/// Serves a model of which some experts have a place that is always read as `fault`, one expert
/// after another, until one is needed by the second job and not by the first: then the first
/// succeeds and the second fails with an error that contains `text`, as often as they are asked.
fn only_who_needs_it_fails(
    fault: &str,
    two: ServingOptions,
    options: impl Fn(&Path, Option<String>) -> Options,
    text: &[&str],
) {
    let dir = dir();
    let spec = Spec::new(Arch::Qwen3Moe);
    let model = write(&spec, dir.path().join("model.gguf"));
    let extent = terrace_ggml::gguf::read(&model).unwrap().tensor(TENSOR).unwrap().extent;
    let len = extent.len / u64::from(spec.experts);
    let sound = serve(options(&model, None), two);
    let golden = both(&sound).map(|heard| heard.end.unwrap().tokens);
    if two.share_passes == SharePasses::Always {
        assert_eq!(sound.status().totals.shared_prompts, 2);
    }
    let mut tried = 0;
    let found = (0..u64::from(spec.experts)).any(|expert| {
        let bad = extent.offset + expert * len + len / 2;
        let faults = format!("{fault}@bytes:{bad}..{}", bad + 1);
        let serving = serve(options(&model, Some(faults)), two);
        tried += 1;
        let differs = |[good, bad]: &[Heard; 2]| good.end.is_ok() && bad.end.is_err();
        let mut heard = both(&serving);
        if !differs(&heard) {
            return false;
        }
        for _ in 0..4 {
            assert!(differs(&heard));
            let [good, bad] = heard;
            assert_eq!(good.end.unwrap().tokens, golden[0]);
            let error = bad.end.unwrap_err();
            let message = error.to_string();
            assert!(matches!(error, EngineError::Context(_)) && message.contains(TENSOR), "{message}");
            let has_all = text.iter().all(|text| message.contains(text));
            assert!(message.contains("model.gguf") && has_all, "{message}");
            heard = both(&serving);
        }
        true
    });
    assert!(found, "{tried} experts, and each is needed by both jobs or by none");
}

#[test]
fn a_place_that_is_never_readable_fails_only_the_answers_that_need_it() {
    only_who_needs_it_fails("eio", TWO, with_faults, &["Input/output error"]);
}

#[test]
fn it_fails_only_the_prompt_that_needs_it_of_those_that_share_a_pass() {
    let two = ServingOptions { share_passes: SharePasses::Always, ..TWO };
    only_who_needs_it_fails("eio", two, with_faults, &["Input/output error"]);
}

/// Checksums are made by a load without faults, and kept for the others.
#[test]
fn a_place_that_changes_silently_fails_only_the_answers_that_need_it() {
    let user = dir();
    let verifying = |model: &Path, faults: Option<String>| Options {
        io: IoOptions { verify: true, ..IoOptions::default() },
        user: UserDirs { config: None, cache: Some(user.path().to_owned()) },
        ..with_faults(model, faults)
    };
    only_who_needs_it_fails("flip", TWO, verifying, &["does not match its checksum", "checksum", "expected"]);
}
