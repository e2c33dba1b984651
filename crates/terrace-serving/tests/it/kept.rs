//! Conversations that are kept while others have the context: what is computed after one was put
//! back is what would have been computed without, bit by bit.

use crate::served::{Job, PLAIN, ask, job, load, options, serve};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use terrace_engine::options::{ContextOptions, PromptCacheOptions};
use terrace_engine::prompt_cache::{Kept, read_file, write_file};
use terrace_engine::{Answer, Engine, Options, Session};
use terrace_ggml::llama::Sampling;
use terrace_model::ByteSize;
use terrace_plan::Budget;
use terrace_serving::{Serving, ServingOptions, SlotOutcome, SlotWork};
use terrace_testkit::{Arch, Spec};

fn tiny(arch: Arch) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let model = terrace_testkit::write(&Spec::new(arch), dir.path().join("model.gguf")).unwrap();
    (dir, model)
}

fn noise(seed: i32, len: usize) -> Vec<i32> {
    (0..len as i32).map(|i| 3 + (i * (7 + 2 * seed) + seed * 31) % 250).collect()
}

/// Several graphs per prompt, and room beyond the first piece that attention is computed in.
fn of(model: &Path, ram: Budget) -> Options {
    let of = options(false);
    Options {
        model: model.into(),
        context: ContextOptions { ctx: Some(1024), batch: 256, ubatch: Some(128), ..of.context },
        prompt_cache: PromptCacheOptions { cache_ram: ram, files: true, ..PromptCacheOptions::default() },
        ..of
    }
}

/// Evaluates a prompt and generates, and returns the logits of each step.
fn go_on(engine: &mut Engine, session: &mut Session, prompt: &[i32], n: usize) -> Vec<Vec<u32>> {
    let mut next = prompt.to_vec();
    (0..n)
        .map(|_| {
            let mut sink = |_: &[u8]| ControlFlow::Continue(());
            let answer = engine.generate(session, &next, Some(1), &Sampling::greedy(), &mut sink).unwrap();
            // The chosen token is not evaluated yet.
            next = if answer.tokens.is_empty() { vec![5] } else { answer.tokens };
            engine.logits().unwrap().iter().map(|logit| logit.to_bits()).collect()
        })
        .collect()
}

#[test]
fn a_conversation_that_was_put_back_goes_on_bit_by_bit() {
    for arch in
        [Arch::Qwen3Moe, Arch::Deepseek2, Arch::Qwen3Next, Arch::Qwen35Moe, Arch::Gemma4, Arch::GptOss]
    {
        let (dir, model) = tiny(arch);
        let mut engine = load(of(&model, Budget::Bytes(ByteSize::ZERO)));
        let key = engine.cache_key().unwrap().clone();
        let cases = (1_usize..800, 1_usize..100, 1_usize..6);
        let mut runner = TestRunner::new(Config { cases: 6, failure_persistence: None, ..Config::default() });
        let engine = std::cell::RefCell::new(&mut engine);
        runner
            .run(&cases, |(first, second, n)| {
                let engine = &mut *engine.borrow_mut();
                let (first, second) = (noise(1, first), noise(2, second));
                let mut session = engine.session();
                go_on(engine, &mut session, &first, 2);
                let kept = engine.keep(&session).unwrap();
                let path = dir.path().join("kept");
                write_file(&mut std::fs::File::create(&path).unwrap(), &key, &kept).unwrap();
                let expected = go_on(engine, &mut session, &second, n);
                // Another conversation has the context meanwhile.
                let mut other = engine.session();
                go_on(engine, &mut other, &noise(3, 300), 2);
                let kept = read_file(&path, &key, 1024).unwrap();
                let mut again = engine.session();
                let prompt = [kept.tokens(), &second].concat();
                let reused = engine.recall(&mut again, &kept, &prompt).unwrap();
                prop_assert_eq!(reused, kept.tokens().len());
                let got = go_on(engine, &mut again, &prompt[reused..], n);
                prop_assert!(got == expected, "{} after {} tokens", arch, reused);
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{arch}: {error}"));
    }
}

fn reusing(serving: &Serving, prompt: &[i32]) -> Answer {
    ask(serving, Job { reuse: true, ..job(prompt, 6) }).unwrap().answer()
}

const PLENTY: Budget = Budget::Bytes(ByteSize::gib(1));

#[test]
fn a_slot_taken_by_another_conversation_continues_the_first_one() {
    for arch in [Arch::Qwen3Moe, Arch::Deepseek2, Arch::Qwen3Next, Arch::Gemma4, Arch::GptOss] {
        let (_dir, model) = tiny(arch);
        let talks: Vec<_> = (0..3).map(|i| (noise(i, 300 + 20 * i as usize), noise(9 + i, 40))).collect();
        // Each conversation has a slot of its own.
        let serving = serve(of(&model, Budget::Bytes(ByteSize::ZERO)), ServingOptions { slots: 3, ..PLAIN });
        let expected: Vec<_> = talks
            .iter()
            .map(|(first, second)| {
                let answer = reusing(&serving, first);
                let prompt = [&first[..], &answer.tokens, second].concat();
                let next = reusing(&serving, &prompt);
                assert!(next.reused > first.len(), "{arch}");
                (answer.tokens, prompt, next)
            })
            .collect();
        let none = serving.status().prompt_cache;
        assert_eq!((none.kept, none.limit), (0, 0));
        drop(serving);
        // All have the same one.
        let serving = serve(of(&model, PLENTY), PLAIN);
        for ((first, _), (answer, ..)) in talks.iter().zip(&expected) {
            let begun = reusing(&serving, first);
            assert_eq!((begun.reused, &begun.tokens), (0, answer), "{arch}");
        }
        for (_, prompt, next) in &expected {
            let went_on = reusing(&serving, prompt);
            assert_eq!((went_on.reused, &went_on.tokens), (next.reused, &next.tokens), "{arch}");
        }
        let status = serving.status();
        assert_eq!(status.prompt_cache.restored, 3, "{arch}");
        let restored: usize = expected.iter().map(|(.., next)| next.reused).sum();
        assert_eq!(status.prompt_cache.restored_tokens, restored as u64);
        assert!(status.prompt_cache.bytes <= status.prompt_cache.limit);
    }
}

#[test]
fn another_answer_to_a_kept_prompt_begins_at_its_checkpoint() {
    for (arch, least) in
        [(Arch::Qwen3Moe, 399), (Arch::Qwen3Next, 384), (Arch::Gemma4, 384), (Arch::GptOss, 384)]
    {
        let (_dir, model) = tiny(arch);
        let prompt = noise(1, 400);
        let serving = serve(of(&model, PLENTY), PLAIN);
        let alone = ask(&serving, job(&prompt, 6)).unwrap().answer();
        let long = |prompt: &[i32]| {
            ask(&serving, Job { reuse: true, n_max: Some(100), ..job(prompt, 0) }).unwrap().answer()
        };
        let first = long(&prompt);
        assert_eq!(first.tokens[..6], alone.tokens, "{arch}");
        reusing(&serving, &noise(2, 300));
        // The answer is longer than the windows.
        let again = long(&prompt);
        assert!(again.reused >= least, "{arch}: {}", again.reused);
        if arch != Arch::Qwen3Moe {
            // The graphs are the same ones.
            assert_eq!(again.tokens, first.tokens, "{arch}");
        }
    }
}

#[test]
fn the_cache_stays_within_its_bytes_and_a_reload_empties_it() {
    let (_dir, model) = tiny(Arch::Qwen3Moe);
    let serving = serve(of(&model, PLENTY), PLAIN);
    reusing(&serving, &noise(1, 200));
    reusing(&serving, &noise(2, 200));
    let one = serving.status().prompt_cache;
    assert_eq!((one.conversations, one.kept), (1, 1));
    drop(serving);
    let room = Budget::Bytes(ByteSize(one.bytes * 5 / 2));
    let serving = serve(of(&model, room), PLAIN);
    for i in 0..6 {
        reusing(&serving, &noise(i, 200));
        let now = serving.status().prompt_cache;
        assert!(now.bytes <= now.limit && now.conversations <= 2, "{now:?}");
    }
    let full = serving.status().prompt_cache;
    assert_eq!((full.conversations, full.kept, full.evicted), (2, 5, 3));
    // The last but one is kept, the first is not.
    assert!(reusing(&serving, &noise(4, 200)).reused == 199);
    assert!(reusing(&serving, &noise(0, 200)).reused < 20);
}

fn with_disk(model: &Path, dir: &Path, most: ByteSize) -> Options {
    let of = of(model, Budget::Bytes(ByteSize::ZERO));
    let disk = Some((dir.to_owned(), most));
    Options { prompt_cache: PromptCacheOptions { cache_disk: disk, ..of.prompt_cache }, ..of }
}

#[test]
fn conversations_on_disk_survive_the_end_of_the_server() {
    for arch in [Arch::Qwen3Moe, Arch::Qwen3Next, Arch::Gemma4] {
        let (dir, model) = tiny(arch);
        let kept = dir.path().join("kept");
        let talks: Vec<_> = (0..3).map(|i| noise(i, 300)).collect();
        let serving = serve(with_disk(&model, &kept, ByteSize::gib(1)), PLAIN);
        let answers: Vec<_> = talks.iter().map(|first| reusing(&serving, first).tokens).collect();
        let prompts: Vec<_> = talks
            .iter()
            .zip(&answers)
            .map(|(first, answer)| [&first[..], answer, &[7, 8, 9]].concat())
            .collect();
        drop(serving);
        let files = || {
            let files = std::fs::read_dir(&kept).unwrap().flatten();
            files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|e| e == "kept"))
        };
        assert_eq!(files().count(), 3, "{arch}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert!(files().all(|path| path.metadata().unwrap().permissions().mode() & 0o777 == 0o600));
            assert_eq!(kept.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        }
        let serving = serve(with_disk(&model, &kept, ByteSize::gib(1)), PLAIN);
        let mut expected = Vec::new();
        for prompt in &prompts {
            let next = reusing(&serving, prompt);
            assert_eq!(next.reused, 305, "{arch}");
            expected.push(next.tokens);
        }
        assert_eq!(serving.status().prompt_cache.disk_read, 3);
        drop(serving);
        // What was damaged is not used, and removed.
        let (mut paths, whole): (Vec<PathBuf>, _) = (files().collect(), files().count());
        paths.sort();
        for (index, path) in paths.iter().enumerate() {
            let mut bytes = std::fs::read(path).unwrap();
            match index % 3 {
                0 => bytes.truncate(bytes.len() - 1),
                1 => *bytes.last_mut().unwrap() ^= 1,
                _ => bytes[100] ^= 1,
            }
            std::fs::write(path, bytes).unwrap();
        }
        let serving = serve(with_disk(&model, &kept, ByteSize::gib(1)), PLAIN);
        for (prompt, expected) in prompts.iter().zip(&expected) {
            let next = reusing(&serving, prompt);
            assert!(next.reused < 20 && next.tokens.len() == expected.len(), "{arch}: {}", next.reused);
        }
        let status = serving.status().prompt_cache;
        // Those that are damaged at their end are found out when they are used.
        assert!(status.disk_refused as usize >= whole - whole / 3, "{arch}: {status:?}");
        assert_eq!(status.disk_read, 0, "{arch}");
    }
}

#[test]
fn files_on_disk_stay_within_their_bytes_and_belong_to_their_model() {
    let (dir, model) = tiny(Arch::Qwen3Moe);
    let kept = dir.path().join("kept");
    let serving = serve(with_disk(&model, &kept, ByteSize::gib(1)), PLAIN);
    reusing(&serving, &noise(1, 200));
    drop(serving);
    let bytes = || -> u64 {
        std::fs::read_dir(&kept).unwrap().flatten().map(|file| file.metadata().unwrap().len()).sum()
    };
    let one = bytes();
    let most = ByteSize(one * 5 / 2);
    let serving = serve(with_disk(&model, &kept, most), PLAIN);
    for i in 2..7 {
        reusing(&serving, &noise(i, 200));
    }
    drop(serving);
    assert!(bytes() <= most.bytes() && bytes() >= one, "{} of {most}", bytes());
    // The same model, written again: nobody knows whether it is the same.
    let again = std::fs::read(&model).unwrap();
    std::fs::write(&model, again).unwrap();
    let serving = serve(with_disk(&model, &kept, most), PLAIN);
    assert!(reusing(&serving, &noise(6, 200)).reused < 20);
    let status = serving.status().prompt_cache;
    assert_eq!((status.disk_refused, status.disk_read), (0, 0));
}

#[test]
fn slots_are_copied_filled_and_emptied() {
    let (_dir, model) = tiny(Arch::Qwen3Next);
    let serving = serve(of(&model, PLENTY), ServingOptions { slots: 2, ..PLAIN });
    let with = |slot, work| {
        let (send, outcome) = std::sync::mpsc::channel();
        serving.with_slot(slot, work, Box::new(move |outcome| drop(send.send(outcome)))).unwrap();
        outcome.recv().unwrap()
    };
    assert_eq!(with(0, SlotWork::Copy).unwrap_err().to_string(), "slot 0 holds no tokens");
    assert_eq!(
        with(7, SlotWork::Erase).unwrap_err().to_string(),
        "there is no slot 7: the last one of 2 is 1"
    );
    let first = reusing(&serving, &noise(1, 200));
    let Ok(SlotOutcome::Copied(kept)) = with(0, SlotWork::Copy) else { panic!("a copy") };
    assert_eq!(kept.tokens().len(), 205);
    assert!(matches!(with(0, SlotWork::Erase), Ok(SlotOutcome::Erased(205))));
    let kept = std::sync::Arc::try_unwrap(kept).unwrap();
    assert!(matches!(with(1, SlotWork::Put(Box::new(kept))), Ok(SlotOutcome::Put(205))));
    let held: Vec<usize> = serving.status().slots.iter().map(|slot| slot.held).collect();
    assert_eq!(held, [0, 205]);
    let prompt = [&noise(1, 200)[..], &first.tokens, &[9]].concat();
    assert_eq!(reusing(&serving, &prompt).reused, 205);
    // A job that names its slot gets that one.
    let (send, events) = std::sync::mpsc::channel();
    let prompt = terrace_serving::Prompt::new(noise(4, 100), serving.facts()).unwrap();
    let work = terrace_serving::Job {
        prompt,
        n_max: Some(1),
        sampling: Sampling::greedy(),
        stop: Vec::new(),
        lines: Default::default(),
        reuse: true,
        slot: Some(1),
        probs: None,
        after_samplers: false,
        tokens: true,
        scored: false,
        scales: Default::default(),
    };
    let sink = Box::new(move |event| crate::served::to_flow(send.send(event).is_ok()));
    let _ticket = serving.submit(serving.prepare(work).unwrap(), sink).unwrap();
    assert!(events.iter().count() > 1);
    let held: Vec<usize> = serving.status().slots.iter().map(|slot| slot.held).collect();
    assert_eq!(held, [0, 100]);
}

/// A state that a file could hold, with any change, is refused or used, and the engine computes on.
#[test]
fn states_that_were_made_up_do_no_harm() {
    for arch in [Arch::Qwen3Moe, Arch::Qwen3Next, Arch::Gemma4] {
        let (dir, model) = tiny(arch);
        let mut engine = load(of(&model, Budget::Bytes(ByteSize::ZERO)));
        let key = engine.cache_key().unwrap().clone();
        let mut session = engine.session();
        let expected = go_on(&mut engine, &mut session, &noise(1, 100), 2);
        let kept = engine.keep(&session).unwrap();
        let path = dir.path().join("kept");
        let changed = |change: &dyn Fn(&mut Vec<u8>)| -> Kept {
            let mut bytes = Vec::new();
            write_file(&mut bytes, &key, &kept).unwrap();
            terrace_engine::prompt_cache::resealed(&mut bytes, change);
            std::fs::write(&path, bytes).unwrap();
            read_file(&path, &key, 1024).unwrap()
        };
        let prompt = [kept.tokens(), &[9]].concat();
        for at in (0..1500).step_by(3) {
            let forged = changed(&|state| {
                if let Some(byte) = state.get_mut(at) {
                    *byte ^= 0xff;
                }
            });
            let mut session = engine.session();
            let _ = engine.recall(&mut session, &forged, &prompt);
        }
        for length in [0, 1, 4, 8, 12, 100, 1000] {
            let forged = changed(&|state| state.truncate(length));
            let mut session = engine.session();
            assert!(engine.recall(&mut session, &forged, &prompt).is_err(), "{arch}: {length} bytes");
        }
        let mut session = engine.session();
        assert!(go_on(&mut engine, &mut session, &noise(1, 100), 2) == expected, "{arch}");
    }
}

/// A model whose file was written to in place, at a place that no sample has, and whose times were put back;
/// and a copy that keeps the times.
#[test]
fn other_bytes_of_the_same_size_and_time_are_another_model() {
    use std::io::{Seek, SeekFrom, Write};
    let (dir, model) = tiny(Arch::Qwen3Moe);
    let path = dir.path().join("kept");
    let key_of = |model: &Path| {
        let engine = load(of(model, Budget::Bytes(ByteSize::ZERO)));
        engine.cache_key().unwrap().clone()
    };
    let key = {
        let mut engine = load(of(&model, Budget::Bytes(ByteSize::ZERO)));
        let key = engine.cache_key().unwrap().clone();
        let mut session = engine.session();
        go_on(&mut engine, &mut session, &noise(1, 50), 2);
        let kept = engine.keep(&session).unwrap();
        write_file(&mut std::fs::File::create(&path).unwrap(), &key, &kept).unwrap();
        key
    };
    assert_eq!(key_of(&model), key);
    assert!(read_file(&path, &key_of(&model), 1024).is_ok());
    let modified = model.metadata().unwrap().modified().unwrap();
    let refused = |key| read_file(&path, &key, 1024).err().unwrap();
    let copy = dir.path().join("copy.gguf");
    std::fs::copy(&model, &copy).unwrap();
    std::fs::File::options().write(true).open(&copy).unwrap().set_modified(modified).unwrap();
    assert!(refused(key_of(&copy)).contains("copies of them"));
    let len = model.metadata().unwrap().len();
    let mut file = std::fs::File::options().write(true).open(&model).unwrap();
    // Between two samples.
    file.seek(SeekFrom::Start((len - 4096) * 29 / 30)).unwrap();
    file.write_all(&[0x5a; 512]).unwrap();
    file.set_modified(modified).unwrap();
    drop(file);
    assert_eq!(model.metadata().unwrap().modified().unwrap(), modified);
    assert_eq!(refused(key_of(&model)), "kept for an earlier state of the model's files, or copies of them");
}
