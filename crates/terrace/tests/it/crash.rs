//! The program is killed at random points, or the disk fills up, while it writes: what was there
//! before stays, or the new file is complete, and the next run removes what was left behind.

use crate::common::{bundled, failure, stderr, terrace};
use crate::stand_in::{Behaviour, REPO, StandIn, hex};
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_testkit::thorough;

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A directory on a real disk, with the files that the program keeps for its user.
fn scene() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A command whose user directories are `home`.
fn at(home: &Path, args: &[&str]) -> Command {
    let mut command = terrace();
    command.env("XDG_CONFIG_HOME", home.join("config")).env("XDG_CACHE_HOME", home.join("cache"));
    command.args(args);
    command
}

/// All regular files and links below a directory, by their names from there.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => all.extend(files(&entry.path())),
            false => all.push(entry.path()),
        }
    }
    all.sort_unstable();
    all
}

/// Runs the command to its end once, then kills it with SIGKILL `times` times, every other time in
/// the last tenth of its run, where most files are written, otherwise anywhere. Calls `check` after
/// each, which returns whether it found something unfinished. In the end the command runs through.
fn killed(what: &str, times: usize, command: impl Fn() -> Command, mut check: impl FnMut() -> bool) {
    let through = || {
        let begin = Instant::now();
        let output = command().output().unwrap();
        assert!(output.status.success(), "{what}: {}", stderr(&output));
        begin.elapsed()
    };
    // How long a run takes, as far as is known: it changes with what else the machine does.
    let mut whole = through();
    assert!(!check(), "{what}: not killed, and not finished");
    let (mut kills, mut ended, mut unfinished) = (0, 0, 0);
    // Spread evenly, in an order that has nothing to do with what is being written.
    let mut share = 0.5_f64;
    for round in 0..times {
        share = (share + 0.618_033_988_75).fract();
        let moment = if round % 2 == 0 { share } else { 0.9 + 0.12 * share };
        let begin = Instant::now();
        let mut child = command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut alive = true;
        while alive && begin.elapsed() < whole.mul_f64(moment) {
            std::thread::sleep(Duration::from_millis(1));
            alive = child.try_wait().unwrap().is_none();
        }
        child.kill().unwrap();
        if alive && child.wait().unwrap().code().is_none() {
            kills += 1;
            whole = whole.mul_f64(if moment > 1.0 { 1.1 } else { 1.0 });
        } else {
            ended += 1;
            whole = begin.elapsed();
        }
        unfinished += usize::from(check());
    }
    through();
    assert!(!check(), "{what}: the next run has left something unfinished");
    eprintln!(
        "{what}: {kills} of {times} runs of about {whole:.2?} were killed, {ended} had ended; \
         {unfinished} left something unfinished"
    );
}

/// Lets the command's files have at most `most` bytes, as a full disk does.
fn limited(mut command: Command, most: u64) -> Command {
    // SAFETY: between fork and exec only system calls are made.
    unsafe {
        command.pre_exec(move || {
            let limit = rustix::process::Rlimit { current: Some(most), maximum: Some(most) };
            rustix::process::setrlimit(rustix::process::Resource::Fsize, limit)?;
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            Ok(())
        });
    }
    command
}

/// Runs the command with at most `most` bytes for each file that it writes, and returns its one
/// error line.
fn full_disk(command: Command, most: u64) -> String {
    let output = limited(command, most).output().unwrap();
    let error = failure(&output, 1);
    assert!(error.contains("File too large"), "{error}");
    error
}

#[test]
fn quantize_leaves_the_old_file_or_the_new_one() {
    let dir = scene();
    let (model, out) = (bundled(), dir.path().join("out.gguf"));
    let args = ["quantize", path(&model), path(&out), "--type", "copy", "--tensor", "ffn_up=q8_0"];
    let args = [&args[..], &["--allow-requantize", "--overwrite"]].concat();
    let command = || at(dir.path(), &args);
    assert!(command().output().unwrap().status.success());
    let new = fs::read(&out).unwrap();
    let check = || {
        let mut unfinished = false;
        for file in files(dir.path()) {
            let bytes = fs::read(&file).unwrap();
            if file == out {
                assert!(bytes == b"GGUF old" || bytes == new, "{} bytes", bytes.len());
            } else {
                assert_eq!(file, out.with_extension("gguf.part"));
                unfinished = true;
            }
        }
        fs::write(&out, "GGUF old").unwrap();
        unfinished
    };
    killed("quantize", thorough(6, 200), command, check);
    // The disk fills up at the header, within a tensor, and with the last bytes.
    for most in [100, 1 << 20, new.len() as u64 - 1] {
        assert!(full_disk(command(), most).contains("out.gguf"));
        assert_eq!(fs::read(&out).unwrap(), b"GGUF old", "{most}");
        assert_eq!(files(dir.path()), std::slice::from_ref(&out), "{most}");
    }
    assert!(command().output().unwrap().status.success());
    assert_eq!(files(dir.path()), [out]);
}

#[test]
fn a_sweep_resumes_after_any_end() {
    let dir = scene();
    let (model, journal) = (bundled(), dir.path().join("s.jsonl"));
    let (text, donor) = (model.with_file_name("sample.kjv.txt"), dir.path().join("q2.gguf"));
    let args = ["quantize", path(&model), path(&donor), "--type", "copy", "--tensor", "ffn_up_exps=q2_K"];
    let made = at(dir.path(), &args).arg("--allow-requantize").output().unwrap();
    assert!(made.status.success(), "{}", stderr(&made));
    let args = ["sweep", path(&model), "-f", path(&text), "-o", path(&journal), "--donor", path(&donor)];
    let more = ["--chunks", "1", "--ctx", "32", "--tensor", r"blk\.[03]\.ffn_up_exps"];
    let args = [&args[..], &more].concat();
    let command = || at(dir.path(), &args);
    // The complete lines, and whether there is an incomplete one.
    let lines = || -> (Vec<Value>, bool) {
        let text = fs::read_to_string(&journal).unwrap_or_default();
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let lines = text[..whole].lines().map(|line| serde_json::from_str(line).unwrap());
        (lines.collect(), whole < text.len())
    };
    assert!(command().output().unwrap().status.success());
    let (golden, _) = lines();
    fs::remove_file(&journal).unwrap();

    // The disk is full: the first thing to be written is a copy of a tensor.
    let before = files(dir.path());
    assert!(full_disk(command(), 100).contains("copies.gguf"));
    assert_eq!(files(dir.path()), before);
    let figures = |lines: &[Value]| -> Vec<Value> {
        // Times are not compared.
        let steps = lines.iter().filter(|line| line.get("kld").is_some());
        steps.map(|step| serde_json::json!([step["subject"], step["kld"]])).collect()
    };
    assert!(!figures(&golden).is_empty(), "{golden:?}");
    killed("sweep", thorough(3, 200), command, || {
        let (lines, half) = lines();
        let copies = files(dir.path()).iter().any(|file| path(file).contains("/.terrace-sweep-"));
        assert!(figures(&golden).starts_with(&figures(&lines)), "{lines:?}");
        let unfinished = figures(&lines).len() < figures(&golden).len();
        // From the beginning each time: a journal that is complete leaves nothing to kill.
        if !unfinished {
            fs::remove_file(&journal).unwrap();
        }
        unfinished || half || copies
    });
    assert!(command().output().unwrap().status.success());
    assert_eq!(figures(&lines().0), figures(&golden));
    assert_eq!(files(dir.path()).len(), before.len() + 1, "{:?}", files(dir.path()));
}

#[test]
fn a_download_is_complete_or_resumes() {
    let dir = scene();
    let mut bytes = fs::read(bundled()).unwrap();
    // Large enough for the download to take a good part of the run.
    bytes.resize(bytes.len() + (32 << 20), 0);
    let hub = StandIn::new(&[("m.gguf", bytes.clone())], Behaviour::default());
    let model = format!("hf:{REPO}");
    let cache = dir.path().join("hf");
    let command = || {
        let mut command = at(dir.path(), &["run", &model, "-p", "In", "-n", "1", "--stream", "none"]);
        command.env("HF_ENDPOINT", &hub.endpoint).env("HF_HOME", &cache);
        command
    };
    let repository = cache.join("hub").join(format!("models--{}", REPO.replace('/', "--")));
    let blob = format!("blobs/{}", hex(&bytes));
    let check = || {
        let mut unfinished = false;
        for file in files(&repository) {
            let name = file.strip_prefix(&repository).unwrap().to_str().unwrap().to_owned();
            let is_link = file.symlink_metadata().unwrap().is_symlink();
            if is_link || name == blob {
                assert!(fs::read(&file).unwrap() == bytes, "{name}");
            } else if name == "refs/main" {
                assert_eq!(fs::read_to_string(&file).unwrap(), crate::stand_in::COMMIT);
            } else {
                // The next run of the same command resumes or removes it.
                assert!(name.ends_with(".part") || name.ends_with(".incomplete"), "{name}");
                assert!(name.ends_with(".part") || bytes.starts_with(&fs::read(&file).unwrap()), "{name}");
                unfinished = true;
            }
        }
        unfinished
    };
    // The disk is full.
    assert!(full_disk(command(), 1 << 20).contains(".incomplete"));
    assert!(check());
    killed("download", thorough(6, 200), command, || {
        let unfinished = check();
        // From the beginning after a complete download, otherwise from where it ended.
        if repository.join("refs/main").exists() && !unfinished {
            fs::remove_dir_all(&repository).unwrap();
        }
        unfinished
    });
    assert!(command().output().unwrap().status.success());
    assert!(!check());
    assert_eq!(files(&repository).len(), 3, "{:?}", files(&repository));
}

/// Kills a command that replaces `file`, then lets it run with a full disk, where it fails with a
/// line that names the file or, with `warns`, succeeds with a warning. `valid` checks each state of
/// the file.
fn replaced(
    what: &str,
    times: usize,
    file: &Path,
    command: impl Fn() -> Command,
    valid: impl Fn(&[u8]),
    warns: bool,
) {
    let folder = file.parent().unwrap();
    let name = file.file_name().unwrap().to_str().unwrap();
    killed(what, times, &command, || {
        valid(&fs::read(file).unwrap());
        let others = files(folder).into_iter().filter(|other| other != file);
        let unfinished = others.inspect(|other| {
            let other = other.file_name().unwrap().to_str().unwrap();
            assert!(other.contains(name) && other.ends_with(".part"), "{other}");
        });
        unfinished.count() > 0
    });
    assert_eq!(files(folder), [file]);
    let before = fs::read(file).unwrap();
    let output = limited(command(), 16).output().unwrap();
    let text = stderr(&output);
    let lines = text.lines().filter(|line| line.contains("File too large"));
    let lines: Vec<_> = lines.collect();
    let [line] = lines[..] else { panic!("{what}: {text}") };
    // A warning may name what it is by other words than its file.
    assert!(warns || line.starts_with("error: ") && line.contains(name), "{what}: {line}");
    assert_eq!(output.status.success(), warns, "{what}: {text}");
    assert!(!text.contains("panicked"), "{what}: {text}");
    assert!(fs::read(file).unwrap() == before, "{what}");
    assert_eq!(files(folder), [file], "{what}");
}

/// Checks that a file is complete JSON.
fn is_json(bytes: &[u8]) {
    let _: Value = serde_json::from_slice(bytes).unwrap();
}

#[test]
fn a_model_s_record_is_old_or_new() {
    let dir = scene();
    let model = bundled();
    let args = ["run", path(&model), "-p", "In the beginning", "-n", "4", "--temp", "0"];
    let args = [&args[..], &["--stream", "experts", "--ram-budget", "8MiB"]].concat();
    let command = || {
        let mut command = at(dir.path(), &args);
        command.env_remove("TERRACE_WARM_START");
        command
    };
    assert!(command().output().unwrap().status.success());
    let [file] = &files(&dir.path().join("cache/terrace/records"))[..] else { panic!("one file") };
    replaced("record of a model", thorough(6, 200), file, command, is_json, true);
}

#[test]
fn a_description_of_the_machine_is_old_or_new() {
    let dir = scene();
    let args = ["machine", "--seconds", "0.05", "--no-storage", "--types", "q4_K"];
    let command = || at(dir.path(), &args);
    assert!(command().output().unwrap().status.success());
    let file = dir.path().join("config/terrace/profile.json");
    replaced("description of the machine", thorough(1, 200), &file, command, is_json, false);
}

#[test]
fn a_preset_is_old_or_new() {
    let dir = scene();
    let model = bundled();
    // Short: the full disk is not to be noticed before the preset is written.
    let prompt = dir.path().join("prompt");
    fs::write(&prompt, "In").unwrap();
    // No knob is left: the defaults are saved.
    let args = ["optimize", path(&model), "-n", "1", "--stream", "experts", "--ram-budget", "8MiB"];
    let args = [&args[..], &["--prompt-file", path(&prompt)]].concat();
    let given = ["--threads", "1", "--ubatch", "512", "--request-size", "1MiB", "--lookahead", "off"];
    let more = ["--cache-policy", "lfu", "--slots-share", "99", "--queue-depth", "16", "--minutes", "10"];
    let args = [&args[..], &given, &more].concat();
    let command = || {
        let mut command = at(dir.path(), &args);
        command.env_remove("TERRACE_THREADS");
        command
    };
    let made = command().output().unwrap();
    assert!(made.status.success(), "{}", stderr(&made));
    let [file] = &files(&dir.path().join("config/terrace/presets"))[..] else { panic!("one file") };
    replaced("preset", thorough(2, 200), file, command, is_json, false);
}

#[test]
fn files_that_the_user_names_are_old_or_new() {
    let dir = scene();
    let model = bundled();
    let text = model.with_file_name("sample.kjv.txt");
    let out = dir.path().join("out");
    fs::create_dir(&out).unwrap();
    let run = ["-p", "In", "-n", "2", "--temp", "0", "--stream", "experts", "--ram-budget", "8MiB"];
    let chunk = ["-f", path(&text), "--chunks", "1", "--ctx", "32"];
    let file = out.join("the-file");
    let commands: [(&str, Vec<&str>, &[&str]); 3] = [
        ("trace", vec!["trace", "record", path(&model), "-o", path(&file)], &run),
        ("timeline", vec!["run", path(&model), "--timeline", path(&file)], &run),
        ("base", vec!["perplexity", path(&model), "--save-logits", path(&file)], &chunk),
    ];
    for (what, first, rest) in commands {
        let args = [&first[..], rest].concat();
        let command = || at(dir.path(), &args);
        let made = command().output().unwrap();
        assert!(made.status.success(), "{what}: {}", stderr(&made));
        let new = fs::read(&file).unwrap();
        // An empty file is of every kind.
        fs::write(&file, "").unwrap();
        let valid = |bytes: &[u8]| {
            if bytes.is_empty() {
                return;
            }
            match what {
                "base" => assert!(bytes == new, "{} of {} bytes", bytes.len(), new.len()),
                // They contain times.
                "timeline" => is_json(bytes),
                _ => assert!(bytes.len().abs_diff(new.len()) < 20, "{} of {} bytes", bytes.len(), new.len()),
            }
            fs::write(&file, "").unwrap();
        };
        replaced(what, thorough(2, 200), &file, command, valid, false);
        fs::remove_file(&file).unwrap();
    }
}
