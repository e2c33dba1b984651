//! A prompt's own tokens, with the probabilities that stock llama.cpp gives them.

use crate::served::{Job, PLAIN, ask, job, load, options, serve, text};
use std::path::PathBuf;
use terrace_engine::options::{ContextOptions, MemoryOptions};
use terrace_engine::{EngineError, Logits, Mode, Options, PromptProbs, StopReason};
use terrace_ggml::llama::{Sampling, Token};
use terrace_plan::Budget;
use terrace_serving::ServingOptions;
use terrace_testkit::{Arch, Spec};

/// Log probabilities of all tokens at each position of a text.
fn logs(options: Options, texts: &[Vec<i32>]) -> Vec<Vec<Vec<f64>>> {
    let context = ContextOptions { outputs: options.context.batch, ..options.context };
    let mut engine = load(Options { context, ..options });
    let mut logits = Logits::new(&mut engine);
    let vocab = logits.vocab();
    let mut of = |text: &Vec<i32>| {
        let mut all = Vec::new();
        logits
            .of_text(text, 0, &mut |rows| {
                assert_eq!(rows.first, all.len());
                all.extend(rows.rows.chunks(vocab).map(|row| {
                    let sum: f64 = row.iter().map(|&logit| f64::from(logit).exp()).sum();
                    row.iter().map(|&logit| f64::from(logit) - sum.ln()).collect::<Vec<_>>()
                }));
                Ok::<_, EngineError>(())
            })
            .unwrap();
        all
    };
    texts.iter().map(&mut of).collect()
}

/// Compares what is reported of a prompt with the log probabilities at its positions.
fn assert_scores(scored: &PromptProbs, text: &[i32], logs: &[Vec<f64>], top: usize) {
    assert_eq!(scored.rest.len() + 1, text.len());
    for ((one, &token), logs) in scored.rest.iter().zip(&text[1..]).zip(logs) {
        let near = |log: f32, expected: f64| (f64::from(log) - expected).abs() < 1e-5;
        assert_eq!(one.token.token, token);
        assert!(near(one.token.log, logs[token as usize]), "{one:?}: {}", logs[token as usize]);
        let mut falling: Vec<usize> = (0..logs.len()).collect();
        falling.sort_by(|&a, &b| logs[b].total_cmp(&logs[a]));
        assert_eq!(one.top.len(), top);
        for (told, &expected) in one.top.iter().zip(&falling) {
            assert!(near(told.log, logs[expected]) && near(told.log, logs[told.token as usize]), "{one:?}");
        }
    }
}

fn scored(prompt: &[i32], n: usize, top: usize) -> Job {
    Job { scored: Some(top), reuse: true, ..job(prompt, n) }
}

#[test]
fn prompts_have_stock_llama_cpps_probabilities() {
    let stock = Options { mode: Mode::Stock { repack: false }, ..options(false) };
    let memory = MemoryOptions { ram_budget: Budget::Auto, ..stock.memory };
    let stock = Options { memory, ..stock };
    // Of a part of a graph, of whole graphs and one token more, of several.
    let texts: Vec<_> = {
        let engine = load(options(false));
        [(0, 1), (0, 5), (100, 32), (2000, 65), (4000, 150)]
            .map(|(from, len)| text(&engine, from, len))
            .into()
    };
    let expected = logs(stock, &texts);
    for streamed in [false, true] {
        let serving = serve(options(streamed), ServingOptions { slots: 3, ..PLAIN });
        // Another answer is generated meanwhile.
        let other = ask(&serving, job(&texts[4][..40], 60)).unwrap();
        let told: Vec<_> =
            texts.iter().map(|text| ask(&serving, scored(text, text.len() % 3, 4)).unwrap()).collect();
        for ((told, text), logs) in told.into_iter().zip(&texts).zip(&expected) {
            let heard = told.all();
            assert_scores(heard.scored.as_ref().unwrap(), text, logs, 4);
            let answer = heard.end.unwrap();
            let n = text.len() % 3;
            assert_eq!((answer.tokens.len(), answer.probs.len(), answer.stop), (n, n, StopReason::Length));
            let bytes = heard.scored.unwrap().bytes();
            assert_eq!(bytes, serving.detokenize(text).unwrap());
        }
        assert_eq!(other.answer().tokens.len(), 60);
    }
}

#[test]
fn what_is_held_of_a_prompt_hides_no_position() {
    let engine = load(options(false));
    let (prompt, vocab) = (text(&engine, 500, 90), engine.vocabulary());
    drop(engine);
    let serving = serve(options(false), PLAIN);
    let first = ask(&serving, scored(&prompt, 1, 1)).unwrap().all();
    let again = ask(&serving, scored(&prompt, 1, 1)).unwrap().all();
    assert_eq!(again.end.unwrap().reused, 0);
    assert_eq!(first.scored, again.scored);
    // What it leaves serves others.
    assert_eq!(ask(&serving, Job { reuse: true, ..job(&prompt, 1) }).unwrap().answer().reused, 89);
    // Also beside whole graphs that leave no other row.
    let plain = ask(&serving, job(&prompt, 3)).unwrap().answer();
    assert_eq!(plain.tokens.len(), 3);
    assert!(ask(&serving, job(&prompt, 3)).unwrap().all().scored.is_none());
    // With all of the vocabulary, probabilities add up.
    let all = ask(&serving, scored(&prompt[..3], 0, vocab)).unwrap().all().scored.unwrap();
    for one in &all.rest {
        let sum: f64 = one.top.iter().map(|prob| f64::from(prob.log).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-4 && one.top.len() == vocab, "{sum}");
    }
}

/// Clients leave out the last one, which is generated.
#[test]
fn the_token_that_ends_the_text_is_reported_with_the_prompt() {
    let serving = serve(options(false), PLAIN);
    let end = serving.facts().ends[0];
    let sampling = Sampling { logit_bias: vec![(Token(end), 1e6)], ..Sampling::greedy() };
    let prompt = [5, 6, 7];
    let with = |scored| Job { scored, sampling: sampling.clone(), ..job(&prompt, 1) };
    let answer = ask(&serving, with(Some(0))).unwrap().answer();
    assert_eq!((answer.stop, answer.tokens.len()), (StopReason::EndOfText, 0));
    assert_eq!(answer.probs.iter().map(|one| one.token.token).collect::<Vec<_>>(), [end]);
    assert!(answer.text.is_empty());
}

fn tiny(arch: Arch) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let model = terrace_testkit::write(&Spec::new(arch), dir.path().join("model.gguf")).unwrap();
    (dir, model)
}

/// With memory of all kinds: keys and values, windows, states.
#[test]
fn prompts_of_every_architecture_are_scored() {
    for &arch in Arch::ALL {
        let (_dir, model) = tiny(arch);
        let options = Options { model, ..options(false) };
        let texts: Vec<Vec<i32>> =
            [130, 33].iter().map(|&len| (0..len).map(|i| 3 + (i * 11 + len) % 250).collect()).collect();
        let expected = logs(options.clone(), &texts);
        let serving = serve(options, ServingOptions { slots: 2, ..PLAIN });
        for (text, logs) in texts.iter().zip(&expected) {
            let heard = ask(&serving, scored(text, 2, 2)).unwrap().all();
            assert_scores(&heard.scored.unwrap(), text, logs, 2);
            assert_eq!(heard.end.unwrap().probs.len(), 2, "{arch}");
        }
    }
}
