//! Files of a loaded model change: the changes are taken, either all or none. An error in a file is
//! reported and leaves the model unchanged.

use crate::reloading;
use crate::reloading::{Trace, dir, load, options, trace, with, write};
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use terrace_engine::options::{IoOptions, MemoryOptions, ReloadOptions, TestingOptions};
use terrace_engine::{Engine, EngineError, OnReload, Options, ReloadError, ReloadReport, Session, Take};
use terrace_ggml::llama::Sampling;
use terrace_model::ByteSize;
use terrace_plan::{Budget, Manage};
use terrace_testkit::rpc::resident;
use terrace_testkit::{Arch, Spec, WeightType};

const EXPERT: &str = "blk.1.ffn_down_exps.weight";
const ATTENTION: &str = "blk.2.attn_q.weight";

/// A model, and files that differ from it in one tensor each.
struct Fixture {
    _dir: tempfile::TempDir,
    model: PathBuf,
    base: PathBuf,
    expert: PathBuf,
    attention: PathBuf,
}

fn scene() -> Fixture {
    let dir = dir();
    let spec = Spec::new(Arch::Qwen3Moe);
    let file = |name: &str, spec: &Spec| write(spec, dir.path().join(name));
    let base = file("base.gguf", &spec);
    let expert = file("expert.gguf", &with(&spec, EXPERT, WeightType::Q8_0));
    let attention = file("attention.gguf", &with(&spec, ATTENTION, WeightType::Q6_K));
    let model = dir.path().join("model.gguf");
    fs::copy(&base, &model).unwrap();
    Fixture { model, base, expert, attention, _dir: dir }
}

impl Fixture {
    fn engine(&self, manage: Manage) -> Engine {
        load(self.options(manage))
    }

    fn options(&self, manage: Manage) -> Options {
        Options {
            reload: ReloadOptions { allowed: true, ..options(&self.model, manage).reload },
            ..options(&self.model, manage)
        }
    }

    fn fresh(path: &Path, manage: Manage) -> Trace {
        trace(&mut load(options(path, manage)))
    }

    /// Replaces the model's file as editors and `mv` do.
    fn rename_from(&self, source: &Path) {
        let copy = self.model.with_extension("new");
        fs::copy(source, &copy).unwrap();
        fs::rename(copy, &self.model).unwrap();
        reloading::settle(&self.model);
    }

    /// Overwrites the model's file as `cp` does.
    fn overwrite_from(&self, source: &Path) {
        let bytes = fs::read(source).unwrap();
        fs::write(&self.model, bytes).unwrap();
    }
}

fn names(report: &ReloadReport) -> Vec<&str> {
    report.swapped.iter().map(|tensor| tensor.tensor.as_str()).collect()
}

#[test]
fn only_what_changed_is_taken_and_what_returns_is_recognised() {
    for manage in [Manage::None, Manage::Experts] {
        let scene = scene();
        let mut engine = scene.engine(manage);
        let golden = trace(&mut engine);
        assert!(engine.reload_changed().unwrap().is_empty(), "nothing has changed");
        assert_eq!(engine.epoch(), 0);

        for (donor, tensor) in [(&scene.expert, EXPERT), (&scene.attention, ATTENTION)] {
            scene.rename_from(donor);
            let report = engine.reload_changed().unwrap();
            // The tensor replaced before is restored by the same file.
            assert!(names(&report).contains(&tensor), "{manage}: {report}");
            assert!(report.swapped.len() <= 2 && report.unchanged.len() > 20, "{manage}: {report}");
            assert!(trace(&mut engine) == Fixture::fresh(donor, manage), "{manage}: {tensor}");
        }
        scene.rename_from(&scene.base);
        let report = engine.reload_changed().unwrap();
        assert_eq!(names(&report), [ATTENTION], "{manage}");
        assert_eq!((report.bytes(), report.swapped[0].state), (ByteSize::ZERO, "original"), "{manage}");
        assert!(trace(&mut engine) == golden, "{manage}: not what was loaded");

        // A new file with the same bytes changes nothing, not even the epoch.
        let epoch = engine.epoch();
        scene.rename_from(&scene.base);
        let report = engine.reload_changed().unwrap();
        assert!(report.is_empty() && report.unchanged.len() > 20, "{manage}: {report}");
        assert_eq!(engine.epoch(), epoch);
    }
}

#[test]
fn files_may_be_overwritten_in_place() {
    for manage in [Manage::None, Manage::Experts, Manage::All] {
        let scene = scene();
        let mut engine = scene.engine(manage);
        let golden = trace(&mut engine);
        for donor in [&scene.expert, &scene.base, &scene.attention, &scene.expert, &scene.base] {
            scene.overwrite_from(donor);
            let report = engine.reload_changed().unwrap();
            assert!(!report.is_empty(), "{manage}");
            let now = trace(&mut engine);
            assert!(now == Fixture::fresh(donor, manage), "{manage}, {}: {report}", donor.display());
            assert_eq!(now == golden, *donor == scene.base, "{manage}");
        }
    }
}

/// Programs that copy files with their times (`cp -p`, `rsync -t`) write to a file and put its time
/// back.
#[test]
fn a_write_is_seen_though_size_and_time_stay() {
    for (manage, tensor, other) in [
        (Manage::None, "blk.2.attn_q.weight", "blk.0.attn_q.weight"),
        (Manage::Experts, "blk.2.ffn_up_exps.weight", "blk.0.ffn_up_exps.weight"),
    ] {
        let scene = scene();
        let mut engine = scene.engine(manage);
        let golden = trace(&mut engine);
        let header = terrace_ggml::gguf::read(&scene.model).unwrap();
        let extent = |name: &str| header.tensor(name).unwrap().extent;
        let (to, from) = (extent(tensor), extent(other));
        assert_eq!(to.len, from.len);
        let time = fs::metadata(&scene.model).unwrap().modified().unwrap();
        let file = fs::OpenOptions::new().read(true).write(true).open(&scene.model).unwrap();
        let mut bytes = vec![0; usize::try_from(to.len).unwrap()];
        file.read_exact_at(&mut bytes, from.offset).unwrap();
        file.write_all_at(&bytes, to.offset).unwrap();
        file.set_modified(time).unwrap();
        drop(file);
        let report = engine.reload_changed().unwrap();
        assert!(names(&report).contains(&tensor), "{manage}: {report}");
        let now = trace(&mut engine);
        assert!(now != golden && now == Fixture::fresh(&scene.model, manage), "{manage}");
        assert!(engine.reload_changed().unwrap().is_empty(), "{manage}: it was seen");
    }
}

/// A program that rewrites a file truncates it first. A generation that streams from it then reads
/// past its end, and waits.
#[test]
fn a_generation_waits_for_who_writes_to_the_file() {
    for manage in [Manage::Experts, Manage::All] {
        let scene = scene();
        let least = {
            let engine = scene.engine(manage);
            engine.plan().placement.as_ref().unwrap().minimum
        };
        let mut engine = load(Options {
            memory: MemoryOptions { ram_budget: Budget::Bytes(least), ..scene.options(manage).memory },
            ..scene.options(manage)
        });
        let prompt = engine.tokenize("The water goes down from one terrace", true, false).unwrap();
        let greedy = Sampling::greedy();
        let mut session = engine.session();
        let golden = engine
            .generate(&mut session, &prompt, Some(24), &greedy, &mut |_| ControlFlow::Continue(()))
            .unwrap();
        let mut session = engine.session();
        let (mut count, mut writer) = (0, None);
        let got = engine.generate(&mut session, &prompt, Some(24), &greedy, &mut |_| {
            count += 1;
            if count == 6 {
                let bytes = fs::read(&scene.base).unwrap();
                let file = fs::OpenOptions::new().write(true).open(&scene.model).unwrap();
                file.set_len(bytes.len() as u64 / 3).unwrap();
                writer = Some(std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(300));
                    file.write_all_at(&bytes, 0).unwrap();
                }));
            }
            ControlFlow::Continue(())
        });
        writer.unwrap().join().unwrap();
        let got = got.unwrap_or_else(|error| panic!("{manage}: {error}"));
        assert_eq!(got.tokens, golden.tokens, "{manage}: the file's bytes have not changed");
        assert_eq!((got.epochs, engine.epoch()), ((0, 1), 1), "{manage}: nothing else requested a reload");

        // If the file is never completed, the generation fails eventually, and the next matching
        // file is taken.
        let file = fs::OpenOptions::new().write(true).open(&scene.model).unwrap();
        file.set_len(file.metadata().unwrap().len() / 3).unwrap();
        let error = engine
            .generate(&mut session, &prompt, Some(24), &greedy, &mut |_| ControlFlow::Continue(()))
            .unwrap_err();
        assert!(matches!(error, EngineError::Overwritten { .. }), "{manage}: {error}");
        scene.overwrite_from(&scene.base);
        engine.reload_changed().unwrap();
        let mut session = engine.session();
        let got = engine
            .generate(&mut session, &prompt, Some(24), &greedy, &mut |_| ControlFlow::Continue(()))
            .unwrap();
        assert_eq!(got.tokens, golden.tokens, "{manage}");
    }
}

/// Reads meet the end of a file that nobody writes to.
#[test]
fn an_end_of_file_that_lasts_is_an_error() {
    let scene = scene();
    let options = scene.options(Manage::Experts);
    let least = load(options.clone()).plan().placement.as_ref().unwrap().minimum;
    let faulty = |from: u64| Options {
        memory: MemoryOptions { ram_budget: Budget::Bytes(least), ..options.clone().memory },
        testing: TestingOptions { inject_fault: Some(format!("eof@{from}..")), ..options.clone().testing },
        reload: ReloadOptions { allowed: true, ..options.clone().reload },
        ..options.clone()
    };
    let mut engine =
        (1..).find_map(|i| Engine::load(faulty(100 * i), &mut |_| ControlFlow::Continue(())).ok()).unwrap();
    let interrupt = engine.interrupt_flag();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(20));
        interrupt.store(true, Ordering::Relaxed);
    });
    let prompt = engine.tokenize("The water goes down from one terrace", true, false).unwrap();
    let mut session = engine.session();
    let answer = engine
        .generate(&mut session, &prompt, Some(200), &Sampling::greedy(), &mut |_| ControlFlow::Continue(()));
    let error = answer.expect_err("it was tried again until it was interrupted");
    assert!(error.to_string().contains("model.gguf"), "{error}");
}

/// After a reload the conversation is evaluated again; Ctrl-C then must not cost what was said.
#[test]
fn an_interrupted_evaluation_after_a_reload_keeps_the_conversation() {
    let scene = scene();
    let mut engine = scene.engine(Manage::None);
    let (interrupt, request) = (engine.interrupt_flag(), engine.reload_request());
    let prompt = engine.tokenize("The water goes down from one terrace", true, false).unwrap();
    let mut session = engine.session();
    let greedy = Sampling::greedy();
    let mut count = 0;
    let answer = engine.generate(&mut session, &prompt, Some(24), &greedy, &mut |_| {
        count += 1;
        if count == 6 {
            scene.rename_from(&scene.expert);
            request.store(true, Ordering::Relaxed);
            interrupt.store(true, Ordering::Relaxed);
        }
        ControlFlow::Continue(())
    });
    let said = [&prompt[..], &answer.unwrap().tokens].concat();
    assert_eq!(engine.epoch(), 1);
    // The token chosen last was never evaluated.
    assert_eq!(session.tokens(), &said[..said.len() - 1]);
    interrupt.store(false, Ordering::Relaxed);
    let go_on = &mut |_: &[u8]| ControlFlow::Continue(());
    let more = engine.generate(&mut session, &said[said.len() - 1..], Some(3), &greedy, go_on).unwrap();
    assert_eq!(session.tokens().len(), said.len() + more.tokens.len() - 1);
}

/// A refused file that was overwritten in place stays refused, whatever else is replaced.
#[test]
fn another_transaction_does_not_make_lost_bytes_good() {
    let scene = scene();
    let mut engine = scene.engine(Manage::Experts);
    let donor = scene.base.with_file_name("donor.gguf");
    fs::copy(&scene.attention, &donor).unwrap();
    let narrow = write(
        &Spec { expert_ff: 256, ..Spec::new(Arch::Qwen3Moe) },
        scene.model.with_file_name("narrow.gguf"),
    );
    // As long as before: no read meets the end of the file.
    let file = fs::OpenOptions::new().write(true).open(&narrow).unwrap();
    file.set_len(fs::metadata(&scene.model).unwrap().len()).unwrap();
    scene.overwrite_from(&narrow);
    engine.reload_changed().unwrap_err();
    let generate = |engine: &mut Engine| {
        let mut session = engine.session();
        let go_on = &mut |_: &[u8]| ControlFlow::Continue(());
        engine.generate(&mut session, &[5, 6, 7], Some(2), &Sampling::greedy(), go_on)
    };
    assert!(matches!(generate(&mut engine), Err(EngineError::Overwritten { .. })));
    engine.swap(&[reloading::from_file(ATTENTION, &donor)]).unwrap();
    let after = generate(&mut engine);
    assert!(matches!(after, Err(EngineError::Overwritten { .. })), "{after:?}");
    scene.overwrite_from(&scene.base);
    engine.reload_changed().unwrap();
    generate(&mut engine).unwrap();
}

#[test]
fn what_is_wrong_with_a_file_is_said_and_nothing_changes() {
    let scene = scene();
    let spec = Spec::new(Arch::Qwen3Moe);
    let narrow = Spec { expert_ff: 256, ..spec.clone() };
    let fewer = Spec { layers: 2, ..spec.clone() };
    let other = |name: &str, spec: &Spec| write(spec, scene.model.with_file_name(name));
    let (narrow, fewer) = (other("narrow.gguf", &narrow), other("fewer.gguf", &fewer));
    let mut engine = scene.engine(Manage::None);
    let golden = trace(&mut engine);
    let model = scene.model.clone();
    let bytes = fs::read(&scene.expert).unwrap();
    let replaced = |bytes: &[u8]| {
        let _ = fs::remove_dir(&model);
        fs::write(model.with_extension("new"), bytes).unwrap();
        fs::rename(model.with_extension("new"), &model).unwrap();
    };
    let mut check = |what: &str, expected: &str| {
        let error = engine.reload_changed().expect_err(what);
        let text = error.to_string();
        assert!(text.contains(expected) && text.starts_with("nothing was reloaded"), "{what}: {text}");
        assert!(!text.contains('\n'), "{what}: {text}");
        assert!(trace(&mut engine) == golden, "{what}: the model has changed");
    };

    replaced(&bytes[..bytes.len() - 10_000]);
    check("cut off in the data", "model.gguf");
    replaced(&bytes[..200]);
    check("cut off in the header", "model.gguf");
    replaced(b"");
    check("empty", "model.gguf");
    replaced(b"not a model at all, but some text");
    check("something else", "model.gguf");
    replaced(&fs::read(&narrow).unwrap());
    check("other shapes", "in the model");
    replaced(&fs::read(&fewer).unwrap());
    check("tensors missing", "no longer in the file");
    let mut unknown = bytes.clone();
    set_type(&mut unknown, EXPERT, 3, 200);
    replaced(&unknown);
    check("an unknown type", EXPERT);
    fs::remove_file(&model).unwrap();
    check("deleted", "model.gguf");
    fs::create_dir(&model).unwrap();
    check("a directory", "model.gguf");
    replaced(&bytes);
    fs::set_permissions(&model, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::File::open(&model).is_err() {
        check("no permission", "model.gguf");
    }
    fs::set_permissions(&model, fs::Permissions::from_mode(0o644)).unwrap();
    let report = engine.reload_changed().unwrap();
    assert_eq!(names(&report), [EXPERT], "a good file is taken after all of them");
    assert!(trace(&mut engine) == Fixture::fresh(&scene.expert, Manage::None));
}

#[test]
fn tensors_that_cannot_be_other_are_refused_by_name() {
    let scene = scene();
    let mut engine = scene.engine(Manage::None);
    let golden = trace(&mut engine);
    // One bad tensor among many good ones: nothing is taken. It is a norm with an integer type of
    // the same size.
    let mut bytes = fs::read(&scene.expert).unwrap();
    set_type(&mut bytes, "blk.0.attn_norm.weight", 1, 26);
    fs::write(scene.model.with_extension("new"), &bytes).unwrap();
    fs::rename(scene.model.with_extension("new"), &scene.model).unwrap();
    match engine.reload_changed() {
        Err(ReloadError::Refused(refusals)) => {
            let texts: Vec<String> = refusals.iter().map(ToString::to_string).collect();
            assert!(texts.len() == 1 && texts[0].contains("blk.0.attn_norm.weight"), "{texts:?}");
            assert!(texts[0].contains("only f32 works"), "{texts:?}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(engine.epoch(), 0);
    assert!(trace(&mut engine) == golden);
    let no_such = engine.swap(&[reloading::original("blk.9.attn_q.weight")]).unwrap_err();
    assert!(no_such.to_string().contains("blk.9.attn_q.weight"), "{no_such}");
}

/// Changes the type of a tensor with `dims` dimensions in the header.
fn set_type(bytes: &mut [u8], tensor: &str, dims: usize, ty: u32) {
    let at = bytes.windows(tensor.len()).position(|window| window == tensor.as_bytes()).unwrap();
    // After the name come the number of dimensions, the dimensions and the type.
    let at = at + tensor.len() + 4 + dims * 8;
    bytes[at..at + 4].copy_from_slice(&ty.to_le_bytes());
}

#[test]
fn a_file_that_is_being_written_is_waited_for() {
    for manage in [Manage::None, Manage::Experts] {
        let scene = scene();
        let mut engine = scene.engine(manage);
        trace(&mut engine);
        let bytes = fs::read(&scene.expert).unwrap();
        let (half, path) = (bytes.len() / 2, scene.model.clone());
        fs::write(&path, &bytes[..half]).unwrap();
        let writer = std::thread::spawn(move || {
            use std::io::Write;
            std::thread::sleep(Duration::from_millis(300));
            let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
            for part in bytes[half..].chunks(100_000) {
                file.write_all(part).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let report = engine.reload_changed().unwrap();
        writer.join().unwrap();
        // Whichever state was taken, another reload finds the complete file.
        engine.reload_changed().unwrap();
        assert!(trace(&mut engine) == Fixture::fresh(&scene.expert, manage), "{manage}: {report}");
    }
}

#[test]
fn streamed_weights_whose_file_was_spoilt_are_not_computed_with() {
    let scene = scene();
    let mut engine = scene.engine(Manage::Experts);
    let golden = trace(&mut engine);
    scene.overwrite_from(&write(
        &Spec { layers: 2, ..Spec::new(Arch::Qwen3Moe) },
        scene.model.with_file_name("fewer.gguf"),
    ));
    assert!(matches!(engine.reload_changed(), Err(ReloadError::Refused(_))));
    let prompt = engine.tokenize("The terraces", true, false).unwrap();
    let mut session = engine.session();
    let generated = engine
        .generate(&mut session, &prompt, Some(1), &Sampling::greedy(), &mut |_| ControlFlow::Continue(()));
    assert!(matches!(generated, Err(EngineError::Overwritten { .. })), "{generated:?}");
    scene.overwrite_from(&scene.base);
    engine.reload_changed().unwrap();
    assert!(trace(&mut engine) == golden);
}

#[test]
fn a_disk_error_in_the_middle_leaves_the_model_as_it_was() {
    let scene = scene();
    let mut failed = 0;
    let mut engine = scene.engine(Manage::None);
    let requests = engine.store_stats().unwrap().requests;
    let golden = trace(&mut engine);
    drop(engine);
    // Statistics start after the load, whose requests come first.
    for n in 1..60 {
        scene.rename_from(&scene.base);
        let faults = Some(format!("eio@{n}"));
        let options = Options {
            testing: TestingOptions { inject_fault: faults, ..scene.options(Manage::None).testing },
            ..scene.options(Manage::None)
        };
        let Ok(mut engine) = Engine::load(options, &mut |_| ControlFlow::Continue(())) else { continue };
        scene.rename_from(&scene.attention);
        match engine.reload_changed() {
            Err(ReloadError::Read(error)) => {
                assert!(error.to_string().contains("model.gguf"), "{error}");
                assert!(trace(&mut engine) == golden, "request {n}");
                assert_eq!(names(&engine.reload_changed().unwrap()), [ATTENTION], "the next try succeeds");
                failed += 1;
            }
            Err(error) => panic!("{error}"),
            Ok(report) => assert_eq!(names(&report), [ATTENTION]),
        }
    }
    assert!(failed > 0, "no fault hit a reload; the load took {requests} requests");
}

#[test]
fn nothing_grows_over_many_reloads() {
    for manage in [Manage::None, Manage::Experts] {
        let scene = scene();
        let mut engine = scene.engine(manage);
        let golden = trace(&mut engine);
        let names = [EXPERT, ATTENTION];
        let donors = [&scene.expert, &scene.attention];
        let mut rss = Vec::new();
        for round in 0..1000 {
            let (tensor, donor) = (names[round % 2], donors[round % 2]);
            engine.swap(&[reloading::from_file(tensor, donor)]).unwrap();
            if round % 25 == 7 {
                trace(&mut engine);
            }
            engine.swap(&[reloading::original(tensor)]).unwrap();
            if round == 99 || round == 999 {
                rss.push((resident("self").unwrap(), fs::read_dir("/proc/self/fd").unwrap().count()));
            }
        }
        assert!(trace(&mut engine) == golden, "{manage}");
        assert_eq!(engine.epoch(), 2000);
        let (early, late) = (rss[0], rss[1]);
        assert!(
            late.0 < early.0 + ByteSize::mib(2),
            "{manage}: {} after 100, {} after 1000",
            early.0,
            late.0
        );
        assert_eq!(late.1, early.1, "{manage}: file descriptors");
    }
}

#[test]
fn a_request_is_met_at_the_next_token() {
    for manage in [Manage::None, Manage::Experts] {
        let scene = scene();
        let text = "The water goes down from one terrace to the next, ";
        let generate = |engine: &mut Engine, session: &mut Session, at: Option<usize>| {
            let prompt = engine.tokenize(text, true, false).unwrap();
            let request = engine.reload_request();
            let mut count = 0;
            engine
                .generate(session, &prompt, Some(12), &Sampling::greedy(), &mut |_| {
                    count += 1;
                    if Some(count) == at {
                        scene.rename_from(&scene.expert);
                        request.store(true, Ordering::Relaxed);
                    }
                    ControlFlow::Continue(())
                })
                .unwrap()
        };
        let mut engine = scene.engine(manage);
        let mut session = engine.session();
        let base = generate(&mut engine, &mut session, None);
        drop(engine);
        assert_eq!(base.epochs, (0, 0));
        // The continuation of the prompt and the tokens so far with the new weights.
        let mut fresh = load(options(&scene.expert, manage));
        let mut held = fresh.tokenize(text, true, false).unwrap();
        held.extend(&base.tokens[..5]);
        let mut session = fresh.session();
        let rest = fresh
            .generate(&mut session, &held, Some(7), &Sampling::greedy(), &mut |_| ControlFlow::Continue(()))
            .unwrap();

        let mut engine = scene.engine(manage);
        let heard = Arc::new(Mutex::new(Vec::new()));
        let ears = Arc::clone(&heard);
        engine.on_reloads(move |outcome| ears.lock().unwrap().push(outcome.as_ref().unwrap().clone()));
        let mut session = engine.session();
        let mixed = generate(&mut engine, &mut session, Some(5));
        assert_eq!(mixed.epochs, (0, 1), "{manage}");
        assert_eq!(mixed.tokens[..5], base.tokens[..5], "{manage}");
        assert_eq!(mixed.tokens[5..], rest.tokens, "{manage}: the context was recomputed");
        let heard = heard.lock().unwrap();
        assert_eq!((heard.len(), names(&heard[0]), heard[0].cleared), (1, vec![EXPERT], true));

        scene.rename_from(&scene.base);
        let options = Options {
            reload: ReloadOptions { contexts: OnReload::Keep, ..scene.options(manage).reload },
            ..scene.options(manage)
        };
        let mut engine = load(options);
        let mut session = engine.session();
        let kept = generate(&mut engine, &mut session, Some(5));
        assert_eq!((kept.epochs, session.len()), ((0, 1), held.len() - 5 + 11));
    }
}

/// A client's request, and the channel for its answer.
type Question = (usize, std::sync::mpsc::Sender<(usize, terrace_engine::Answer)>);

#[test]
fn clients_get_the_answer_of_one_epoch_whatever_is_reloaded_meanwhile() {
    const CLIENTS: usize = 8;
    let reloads = terrace_testkit::thorough(60, 500);
    const TOKENS: usize = 4;
    for manage in [Manage::None, Manage::Experts] {
        let scene = scene();
        let prompts: Vec<String> = (0..CLIENTS).map(|i| format!("Client {i} asks for the water ")).collect();
        let answer = |engine: &mut Engine, prompt: &str| {
            let mut session = engine.session();
            let tokens = engine.tokenize(prompt, true, false).unwrap();
            let sampling = Sampling::greedy();
            engine
                .generate(&mut session, &tokens, Some(TOKENS), &sampling, &mut |_| ControlFlow::Continue(()))
                .unwrap()
        };
        let golden = |path: &Path| {
            let mut engine = load(options(path, manage));
            prompts.iter().map(|prompt| answer(&mut engine, prompt).tokens).collect::<Vec<_>>()
        };
        // Even epochs have the model's own weights, odd ones the donor's.
        let golden = [golden(&scene.base), golden(&scene.expert)];
        assert_ne!(golden[0], golden[1]);
        let mut engine = scene.engine(manage);
        let request = engine.reload_request();
        let epoch = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let seen = Arc::clone(&epoch);
        engine.on_reloads(move |outcome| match outcome {
            Ok(report) => seen.store(report.epoch, Ordering::SeqCst),
            Err(error) => panic!("{error}"),
        });
        let (ask, questions) = std::sync::mpsc::channel::<Question>();
        let done = std::sync::atomic::AtomicBool::new(false);
        let count = std::sync::atomic::AtomicU64::new(0);
        let (mut whole, mut straddling) = ([0, 0], 0);
        std::thread::scope(|scope| {
            // The owner of the model.
            scope.spawn(move || {
                for (client, reply) in questions {
                    let prompt = format!("Client {client} asks for the water ");
                    let _ = reply.send((client, answer(&mut engine, &prompt)));
                }
            });
            let (collect, answers) = std::sync::mpsc::channel();
            for client in 0..CLIENTS {
                let (ask, collect, done) = (ask.clone(), collect.clone(), &done);
                scope.spawn(move || {
                    while !done.load(Ordering::SeqCst) {
                        let (reply, answer) = std::sync::mpsc::channel();
                        ask.send((client, reply)).unwrap();
                        collect.send(answer.recv().unwrap()).unwrap();
                    }
                });
            }
            drop((ask, collect));
            let (scene, epoch, done, count) = (&scene, &epoch, &done, &count);
            scope.spawn(move || {
                for reload in 1..=reloads {
                    scene.rename_from(if reload % 2 == 1 { &scene.expert } else { &scene.base });
                    request.store(true, Ordering::SeqCst);
                    let wait = |over: &dyn Fn() -> bool| {
                        while !over() {
                            std::thread::sleep(Duration::from_micros(200));
                        }
                    };
                    wait(&|| epoch.load(Ordering::SeqCst) >= reload);
                    let answered = count.load(Ordering::SeqCst);
                    wait(&|| count.load(Ordering::SeqCst) > answered + 1);
                }
                done.store(true, Ordering::SeqCst);
            });
            for (client, generation) in answers {
                count.fetch_add(1, Ordering::SeqCst);
                let (first, last) = generation.epochs;
                if first == last {
                    let parity = usize::from(first % 2 == 1);
                    assert_eq!(generation.tokens, golden[parity][client], "{manage}, epoch {first}");
                    whole[parity] += 1;
                } else {
                    // It started with the old weights, and reports that.
                    let begun = &golden[usize::from(first % 2 == 1)][client];
                    assert_eq!(generation.tokens[0], begun[0], "{manage}, epochs {first} to {last}");
                    straddling += 1;
                }
            }
        });
        eprintln!("{manage}: {whole:?} answers of one epoch, {straddling} of several");
        let enough = reloads / 5;
        assert!(whole.iter().all(|&answers| answers > enough), "{manage}: {whole:?} {straddling}");
    }
}

/// Tensors of a changed file, or of another file, have no checksums of the load; the others keep
/// theirs.
#[test]
fn a_verified_model_can_be_reloaded() {
    let scene = scene();
    for manage in [Manage::Experts, Manage::None] {
        let golden = [&scene.base, &scene.expert].map(|path| Fixture::fresh(path, manage));
        scene.rename_from(&scene.base);
        let io = IoOptions { verify: true, ..IoOptions::default() };
        let mut engine = load(Options { io, ..scene.options(manage) });
        assert_eq!(trace(&mut engine), golden[0]);
        scene.rename_from(&scene.expert);
        assert_eq!(names(&engine.reload_changed().unwrap()), [EXPERT]);
        assert_eq!(trace(&mut engine), golden[1]);
        scene.overwrite_from(&scene.base);
        reloading::settle(&scene.model);
        engine.reload_changed().unwrap();
        for _ in 0..2 {
            assert_eq!(trace(&mut engine), golden[0]);
        }
        let stats = engine.store_stats().unwrap();
        assert_eq!((stats.mismatches, stats.healed), (0, 0), "{manage}");
        assert!(manage == Manage::None || stats.verified > 0);
    }
}

/// Callers that take the rest get it, but no tensor goes on with bytes that are gone.
#[test]
fn the_rest_is_taken_only_while_old_bytes_exist() {
    for manage in [Manage::None, Manage::Experts] {
        let scene = scene();
        let mut engine = scene.engine(manage);
        let mut bytes = fs::read(&scene.expert).unwrap();
        set_type(&mut bytes, "blk.0.attn_norm.weight", 1, 26);
        fs::write(scene.model.with_extension("new"), &bytes).unwrap();
        fs::rename(scene.model.with_extension("new"), &scene.model).unwrap();
        reloading::settle(&scene.model);
        assert!(matches!(engine.reload_changed(), Err(ReloadError::Refused(_))));
        let report = engine.reload_taking(Take::Acceptable).unwrap();
        assert_eq!(report.refused.len(), 1, "{manage}: {report}");
        assert_eq!(report.refused[0].tensor, "blk.0.attn_norm.weight");
        let file = terrace_ggml::gguf::read(&scene.expert).unwrap();
        assert!(!report.is_empty(), "{manage}: {report}");
        for swapped in &report.swapped {
            let extent = file.tensor(&swapped.tensor).unwrap().extent;
            assert_eq!((swapped.offset, swapped.size.bytes()), (extent.offset, extent.len));
            assert_eq!((&swapped.path, &swapped.sha256), (&scene.model, &None));
        }
        assert!(trace(&mut engine) == Fixture::fresh(&scene.expert, manage), "{manage}: {report}");
    }
    let scene = scene();
    let mut engine = scene.engine(Manage::Experts);
    let fewer = Spec { layers: 2, ..Spec::new(Arch::Qwen3Moe) };
    scene.overwrite_from(&write(&fewer, scene.model.with_file_name("fewer.gguf")));
    reloading::settle(&scene.model);
    assert!(matches!(engine.reload_taking(Take::Acceptable), Err(ReloadError::Refused(_))));
    assert_eq!(engine.epoch(), 0);
}
