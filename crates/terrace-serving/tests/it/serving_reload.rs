//! Tensors change while callers are answered: each answer comes from one state of the model, or
//! reports that it does not.

use crate::reloading::settle;
use crate::served::{Job, PLAIN, Reply, ask, job, load, lone, models, options, text, to_flow};
use std::collections::HashSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::time::{Duration, SystemTime};
use terrace_engine::options::{ContextOptions, MemoryOptions, ReloadOptions};
use terrace_engine::{Answer, Engine, EngineError, OnReload, Options, ReloadOutcome, StopReason};
use terrace_ggml::llama::FileType;
use terrace_ggml::llama::Sampling;
use terrace_model::ByteSize;
use terrace_plan::Budget;
use terrace_quantize::{QuantizeOptions, QuantizePlan};
use terrace_serving::{Event, Serving, ServingOptions};

/// A copy of the bundled model, and the same model with other experts.
struct Fixture {
    _dir: tempfile::TempDir,
    model: PathBuf,
    base: PathBuf,
    other: PathBuf,
}

/// Number of tensors with another type in the other file.
const CHANGED: usize = 4;

fn scene() -> Fixture {
    // On the disk of the target directory: /tmp may be memory, which has no direct I/O.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let base = models().join("tiny-moe-Q4_K.gguf");
    let other = dir.path().join("other.gguf");
    let rules = ["^blk\\.[13]\\.ffn_(gate|down)_exps\\.weight$=q4_0".parse().unwrap()];
    let asked = QuantizeOptions {
        rules: rules.into(),
        allow_requantize: true,
        ..QuantizeOptions::new(&base, FileType::COPY)
    };
    QuantizePlan::new(&asked).unwrap().write(&other, &mut |_| ControlFlow::Continue(())).unwrap();
    let model = dir.path().join("model.gguf");
    fs::copy(&base, &model).unwrap();
    Fixture { model, base, other, _dir: dir }
}

impl Fixture {
    fn options(&self, streamed: bool) -> Options {
        let ram_budget = if streamed { Budget::Bytes(ByteSize::mib(6)) } else { Budget::Auto };
        Options {
            model: self.model.clone(),
            reload: ReloadOptions { allowed: true, ..options(streamed).reload },
            memory: MemoryOptions { ram_budget, ..options(streamed).memory },
            ..options(streamed)
        }
    }

    fn load(&self, streamed: bool, slots: u32) -> Engine {
        load(Options {
            context: ContextOptions { sequences: slots, unified: false, ..self.options(streamed).context },
            ..self.options(streamed)
        })
    }

    /// Replaces the model's file as editors and `mv` do.
    fn rename_from(&self, source: &Path) {
        let copy = self.model.with_extension("new");
        fs::copy(source, &copy).unwrap();
        fs::rename(copy, &self.model).unwrap();
        settle(&self.model);
    }

    /// The model's own file for even epochs, the other for odd ones.
    fn at(&self, epoch: u64) -> &Path {
        if epoch.is_multiple_of(2) { &self.base } else { &self.other }
    }
}

fn reload(serving: &Serving) -> ReloadOutcome {
    let (send, outcome) = channel();
    serving.reload(Box::new(move |outcome| send.send(outcome).unwrap())).unwrap();
    outcome.recv().unwrap()
}

#[test]
fn callers_get_the_answer_of_one_epoch_whatever_is_reloaded_meanwhile() {
    const CALLERS: usize = 8;
    let reloads = terrace_testkit::thorough(30, 120);
    for streamed in [false, true] {
        let scene = scene();
        let prompts: Vec<Vec<i32>> = {
            let engine = scene.load(streamed, 1);
            (0..CALLERS).map(|i| text(&engine, 700 * i, 4 + 5 * i)).collect()
        };
        let jobs: Vec<Job> =
            prompts.iter().map(|prompt| Job { reuse: false, ..job(prompt, 3 + prompt.len() % 4) }).collect();
        let golden = [&scene.base, &scene.other].map(|path| {
            let mut engine = load(Options { model: path.clone(), ..scene.options(streamed) });
            jobs.iter().map(|job| lone(&mut engine, job).tokens).collect::<Vec<_>>()
        });
        let told_apart = (0..CALLERS).filter(|&i| golden[0][i] != golden[1][i]).count();
        assert!(told_apart > 0, "the files give the same answers");
        let mut engine = scene.load(streamed, 4);
        let request = engine.reload_request();
        let epoch = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&epoch);
        engine.on_reloads(move |outcome| seen.store(outcome.as_ref().unwrap().epoch, Ordering::SeqCst));
        let serving = Serving::start(engine, ServingOptions { slots: 4, ..PLAIN });
        let (done, count) = (AtomicBool::new(false), AtomicU64::new(0));
        let (mut whole, mut straddling) = ([0, 0], 0);
        std::thread::scope(|scope| {
            let (collect, answers) = channel::<(usize, Answer)>();
            for (caller, job) in jobs.iter().enumerate() {
                let (collect, done, serving) = (collect.clone(), &done, &serving);
                scope.spawn(move || {
                    while !done.load(Ordering::SeqCst) {
                        collect.send((caller, ask(serving, job.clone()).unwrap().answer())).unwrap();
                    }
                });
            }
            drop(collect);
            let (scene, epoch, done, count, serving) = (&scene, &epoch, &done, &count, &serving);
            scope.spawn(move || {
                let wait = |over: &dyn Fn() -> bool| {
                    while !over() {
                        std::thread::sleep(Duration::from_micros(200));
                    }
                };
                for next in 1..=reloads {
                    scene.rename_from(scene.at(next));
                    // By the flag that signal handlers set, and by a call.
                    if next % 3 == 0 {
                        request.store(true, Ordering::SeqCst);
                        wait(&|| epoch.load(Ordering::SeqCst) >= next);
                    } else {
                        let report = reload(serving).unwrap();
                        assert_eq!((report.epoch, report.swapped.len()), (next, CHANGED));
                    }
                    let answered = count.load(Ordering::SeqCst);
                    wait(&|| count.load(Ordering::SeqCst) > answered + 8);
                }
                done.store(true, Ordering::SeqCst);
            });
            for (caller, answer) in answers {
                count.fetch_add(1, Ordering::SeqCst);
                assert_eq!(answer.stop, StopReason::Length);
                let (first, last) = answer.epochs;
                let begun = &golden[(first % 2) as usize][caller];
                if first == last {
                    assert_eq!(&answer.tokens, begun, "streamed {streamed}, caller {caller}, epoch {first}");
                    whole[(first % 2) as usize] += 1;
                } else {
                    // It started with the old weights, and reports that.
                    assert_eq!(answer.tokens[0], begun[0], "streamed {streamed}, {first} to {last}");
                    straddling += 1;
                }
            }
        });
        let status = serving.status();
        assert_eq!((status.epoch, status.totals.ended.failed), (reloads, 0));
        eprintln!(
            "streamed {streamed}: {whole:?} answers of one epoch, {straddling} of several, {} tokens evaluated again",
            status.totals.recomputed_tokens
        );
        assert!(whole[0] > 100 && whole[1] > 100, "streamed {streamed}: {whole:?} {straddling}");
    }
}

/// The answers to a job and two others if the model is reloaded from the other file after the job's
/// fifth token.
fn reloaded_under(
    scene: &Fixture,
    serving: &Serving,
    request: &Arc<AtomicBool>,
    job: &Job,
) -> (Answer, Vec<Answer>) {
    let others: Vec<Reply> =
        [20, 70].map(|len| ask(serving, self::job(&job.prompt[..len], 40)).unwrap()).into();
    let (request, new, model) = (Arc::clone(request), scene.other.clone(), scene.model.clone());
    let (send, told) = channel();
    let mut texts = 0;
    let sink = move |event: Event| {
        texts += usize::from(matches!(event, Event::Text(_)));
        if texts == 5 && matches!(event, Event::Text(_)) {
            fs::copy(&new, model.with_extension("new")).unwrap();
            fs::rename(model.with_extension("new"), &model).unwrap();
            settle(&model);
            request.store(true, Ordering::Relaxed);
        }
        to_flow(send.send(event).is_ok())
    };
    let _ticket = job.clone().submit(serving, Box::new(sink)).unwrap();
    let answer = told.into_iter().find_map(|event| match event {
        Event::Finished(answer) => Some(*answer),
        Event::Failed(error) => panic!("{error}"),
        _ => None,
    });
    (answer.unwrap(), others.into_iter().map(Reply::answer).collect())
}

#[test]
fn a_job_goes_on_with_the_new_weights_as_a_generation_does() {
    for (streamed, on_reload) in
        [(false, OnReload::Clear), (true, OnReload::Clear), (false, OnReload::Keep), (true, OnReload::Keep)]
    {
        let label = format!("streamed {streamed}, {on_reload:?}");
        let scene = scene();
        let options = Options {
            reload: ReloadOptions { contexts: on_reload, ..scene.options(streamed).reload },
            ..scene.options(streamed)
        };
        let mut engine = load(options.clone());
        let prompt = text(&engine, 5000, 80);
        let whole = lone(&mut engine, &job(&prompt, 12));
        let request = engine.reload_request();
        let mut count = 0;
        let mut session = engine.session();
        let mixed: Answer = engine
            .generate(&mut session, &prompt, Some(12), &Sampling::greedy(), &mut |_| {
                count += 1;
                if count == 5 {
                    scene.rename_from(&scene.other);
                    request.store(true, Ordering::Relaxed);
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(mixed.epochs, (0, 1));
        drop(engine);

        scene.rename_from(&scene.base);
        let mut engine = load(Options {
            context: ContextOptions { sequences: 4, unified: false, ..options.context },
            ..options
        });
        let request = engine.reload_request();
        let serving = Serving::start(engine, ServingOptions { slots: 4, ..PLAIN });
        // Fills a slot that is idle later.
        let idle = ask(&serving, job(&prompt, 4)).unwrap().answer();
        assert_eq!(idle.tokens, whole.tokens[..4], "{label}");
        let (answer, others) = reloaded_under(&scene, &serving, &request, &job(&prompt, 12));
        assert_eq!((&answer.tokens, answer.epochs), (&mixed.tokens, (0, 1)), "{label}");
        let kept = on_reload == OnReload::Keep;
        let status = serving.status();
        assert_eq!(status.epoch, 1);
        assert_eq!(status.totals.recomputed_tokens > 80, !kept, "{label}: {status:?}");
        let epochs: HashSet<_> = others.iter().map(|other| other.epochs).collect();
        assert_eq!(epochs, HashSet::from([(0, 1)]), "{label}: the others were generating, too");
        // The idle slot's keys and values come from the old weights.
        let again =
            ask(&serving, Job { reuse: true, ..job(&[&prompt[..], &idle.tokens, &[5, 6]].concat(), 4) });
        let again = again.unwrap().answer();
        // If kept, they come from both. Otherwise slots that were generating recomputed theirs, and
        // one of these holds the prompt.
        assert!(again.reused >= prompt.len(), "{label}: {}", again.reused);
        assert_eq!(again.epochs, if kept { (0, 1) } else { (1, 1) }, "{label}");
    }
}

#[test]
fn an_idle_worker_sees_that_a_reload_is_asked_for() {
    let scene = scene();
    let mut engine = scene.load(false, 2);
    let request = engine.reload_request();
    let (send, heard) = sync_channel(4);
    engine.on_reloads(move |outcome| send.send(outcome.as_ref().map(|report| report.epoch).ok()).unwrap());
    let serving = Serving::start(engine, ServingOptions { slots: 2, ..PLAIN });
    let prompt =
        serving.tokenize("The water goes down from one terrace to the next", true, false, &|| true).unwrap();
    let warm = Job { reuse: true, ..job(&prompt, 3) };
    assert_eq!(ask(&serving, warm.clone()).unwrap().answer().reused, 0);
    assert_eq!(ask(&serving, warm.clone()).unwrap().answer().reused, prompt.len() - 1);
    scene.rename_from(&scene.other);
    request.store(true, Ordering::SeqCst);
    assert_eq!(heard.recv().unwrap(), Some(1));
    let answer = ask(&serving, warm.clone()).unwrap().answer();
    assert_eq!((answer.reused, answer.epochs), (0, (1, 1)), "held tokens came from the old weights");

    // A refused reload changes nothing, and is reported to its requester.
    fs::write(&scene.model, b"no model").unwrap();
    let error = reload(&serving).unwrap_err();
    assert!(error.to_string().starts_with("nothing was reloaded"), "{error}");
    let again = ask(&serving, Job { reuse: false, ..warm.clone() }).unwrap().answer();
    assert_eq!((again.tokens, again.epochs), (answer.tokens, (1, 1)));
    assert!(ask(&serving, warm).unwrap().answer().reused > 0, "nothing was forgotten");
}

/// Puts the first half of a file at the model's path, as a program that is copying it does. It looks
/// freshly written however long the test takes.
fn begin_copy(scene: &Fixture, in_place: bool) -> Vec<u8> {
    let bytes = fs::read(&scene.other).unwrap();
    let path = if in_place { scene.model.clone() } else { scene.model.with_extension("new") };
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let later = SystemTime::now() + Duration::from_secs(3600);
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_modified(later).unwrap();
    if !in_place {
        fs::rename(&path, &scene.model).unwrap();
    }
    bytes
}

/// What the test below hears, in order.
enum News {
    Text,
    Asked,
    Finished(Box<Answer>),
    Reload(ReloadOutcome),
}

#[test]
fn a_hundred_reloads_while_a_file_is_copied_hold_nothing_up() {
    for streamed in [false, true] {
        let scene = scene();
        let serving = Serving::start(scene.load(streamed, 1), ServingOptions { slots: 1, ..PLAIN });
        let prompt = serving.tokenize("The water goes down", true, false, &|| true).unwrap();
        let (send, news) = channel();
        let events = send.clone();
        let sink = move |event: Event| {
            to_flow(match event {
                Event::Text(_) => events.send(News::Text).is_ok(),
                Event::Finished(answer) => events.send(News::Finished(answer)).is_ok(),
                Event::Failed(error) => panic!("{error}"),
                _ => true,
            })
        };
        let _ticket = job(&prompt, 300).submit(&serving, Box::new(sink)).unwrap();
        assert!(matches!(news.recv().unwrap(), News::Text));
        // In a new file: the bytes that stream are still there.
        begin_copy(&scene, false);
        send.send(News::Asked).unwrap();
        for _ in 0..100 {
            let send = send.clone();
            let done = Box::new(move |outcome| send.send(News::Reload(outcome)).unwrap());
            serving.reload(done).unwrap();
        }
        let (mut asked, mut texts, mut outcomes, mut answer) = (false, 0, Vec::new(), None);
        while answer.is_none() || outcomes.len() < 100 {
            match news.recv().unwrap() {
                News::Text => texts += usize::from(asked),
                News::Asked => asked = true,
                News::Finished(finished) => answer = Some(finished),
                News::Reload(outcome) => {
                    // One round at least between two tries, however busy the machine is.
                    assert!(texts > 3, "streamed {streamed}: {texts} tokens before the first answer");
                    outcomes.push(outcome.unwrap_err());
                }
            }
        }
        assert!(outcomes.iter().all(|error| error.to_string().starts_with("nothing was reloaded")));
        // The requests came while the first one was being tried.
        let distinct: HashSet<_> = outcomes.iter().map(Arc::as_ptr).collect();
        assert!(distinct.len() < 50, "streamed {streamed}: {} reloads", distinct.len());
        assert_eq!(answer.unwrap().tokens.len(), 300);
        scene.rename_from(&scene.other);
        assert_eq!(reload(&serving).unwrap().swapped.len(), CHANGED);
    }
}

/// A file that is overwritten in place takes the bytes that stream with it: jobs wait for its
/// writer, and leave when their callers do.
#[test]
fn jobs_wait_for_the_writer_of_their_bytes() {
    // The tries end after 3 s, which a busy machine may need to write the file.
    assert!((0..10).any(|_| waited_for_the_writer()));
}

/// False if the tries ended before the file was complete.
fn waited_for_the_writer() -> bool {
    let scene = scene();
    let mut engine = scene.load(true, 2);
    let request = engine.reload_request();
    let serving = Serving::start(engine, ServingOptions { slots: 2, ..PLAIN });
    let prompt = serving.tokenize("The water goes down", true, false, &|| true).unwrap();
    let told = ask(&serving, job(&prompt, 100)).unwrap();
    let bytes = begin_copy(&scene, true);
    request.store(true, Ordering::SeqCst);
    let (send, outcome) = channel();
    serving.reload(Box::new(move |outcome| send.send(outcome).unwrap())).unwrap();
    // Another job can be begun and left meanwhile.
    let (begun, started) = channel();
    let sink = Box::new(move |_| to_flow(begun.send(()).is_ok()));
    let other = job(&prompt, 100).submit(&serving, sink);
    started.recv().unwrap();
    drop(other.unwrap());
    fs::write(&scene.model, &bytes).unwrap();
    let (outcome, end) = (outcome.recv().unwrap(), told.all().end);
    match (outcome, end) {
        (Ok(_), Ok(answer)) => {
            assert_eq!((answer.tokens.len(), answer.epochs.1), (100, 1));
            true
        }
        (Err(_), Err(EngineError::Overwritten { .. })) => false,
        (outcome, end) => panic!("{outcome:?}, {end:?}"),
    }
}

#[test]
fn weights_that_are_gone_fail_jobs_and_not_the_worker() {
    let scene = scene();
    let serving = Serving::start(scene.load(true, 2), ServingOptions { slots: 2, ..PLAIN });
    let prompt = serving.tokenize("The water goes down", true, false, &|| true).unwrap();
    let before = ask(&serving, job(&prompt, 5)).unwrap().answer();
    let good = fs::read(&scene.base).unwrap();
    fs::write(&scene.model, &good[..good.len() / 2]).unwrap();
    reload(&serving).unwrap_err();
    let told: Vec<_> = (0..3).map(|_| ask(&serving, job(&prompt, 5)).unwrap()).collect();
    for told in told {
        assert!(matches!(told.all().end, Err(EngineError::Overwritten { .. })));
    }
    assert_eq!(serving.status().totals.ended.failed, 3);
    fs::write(&scene.model, &good).unwrap();
    reload(&serving).unwrap();
    let after = ask(&serving, job(&prompt, 5)).unwrap().answer();
    assert_eq!(after.tokens, before.tokens);
}
