//! The program starts wherever people start it: without a home, with variables that are set to nothing, with files
//! and names of other systems' making.

use crate::common::{bundled, failure, json, run, stderr, stdout, terrace, tiny};
use crate::server::Server;
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use terrace_ggml::gguf;

use terrace_testkit::{AdapterSpec, Edit, write_adapter, write_edited};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A short greedy run.
fn greedy(args: &[&str]) -> Command {
    let mut command = terrace();
    command.args(["run", text(&bundled()), "-p", "In the beginning", "-n", "6"]).args(args);
    command
}

#[test]
fn homes_that_cannot_be_entered_are_as_none() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    let relative = (OsString::from("/nonexistent"), OsString::from("relative"));
    let homes = [("/dev/null".into(), OsString::new()), (file.into(), OsString::new()), relative];
    let model = bundled();
    for (home, config) in homes {
        for args in [&["inspect", text(&model)][..], &["run", text(&model), "-p", "x", "-n", "1"]] {
            let mut command = terrace();
            command.args(args).env("HOME", &home).env("XDG_CONFIG_HOME", &config);
            command.env_remove("TERRACE_WARM_START");
            let output = command.output().unwrap();
            let told = stderr(&output);
            assert!(output.status.success(), "{home:?}, {args:?}: {told}");
            assert!(!told.contains("WARN") && !told.contains("warning"), "{home:?}, {args:?}: {told}");
        }
    }
    // A file that is there and cannot be read is an error, with a hint that is true.
    let config = dir.path().join("config");
    fs::create_dir_all(config.join("terrace/config.toml")).unwrap();
    let output = terrace().args(["inspect", text(&model)]).env("XDG_CONFIG_HOME", &config).output().unwrap();
    let error = failure(&output, 2);
    assert!(
        error.contains("a directory, not a regular file") && !stderr(&output).contains("TOML"),
        "{}",
        stderr(&output)
    );
    let output = terrace().args(["--config", "/nonexistent.toml", "inspect", text(&model)]).output().unwrap();
    assert!(failure(&output, 2).contains("No such file") && !stderr(&output).contains("TOML"));
}

/// Only the administrator can start a process as another user; others cannot enter a folder of mode 0 either.
#[test]
fn a_home_of_another_user_is_as_none() {
    let dir = TempDir::new().unwrap();
    let home = dir.path().join("home");
    fs::create_dir_all(home.join(".config/terrace")).unwrap();
    fs::write(home.join(".config/terrace/config.toml"), "ctx = \"wrong\"").unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o000)).unwrap();
    let mut command = terrace();
    command.args(["completions", "bash"]).env("HOME", &home);
    if rustix::process::geteuid().is_root() {
        // The program may lie in a folder that the other user cannot enter: it is opened before.
        let program = fs::File::open(env!("CARGO_BIN_EXE_terrace")).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&program);
        command = Command::new(format!("/proc/self/fd/{number}"));
        command.args(["completions", "bash"]).env("HOME", &home).uid(65534).gid(65534).current_dir("/");
        // SAFETY: a system call, between fork and exec.
        unsafe {
            command.pre_exec(move || {
                Ok(rustix::io::fcntl_setfd(
                    rustix::fd::BorrowedFd::borrow_raw(number),
                    rustix::io::FdFlags::empty(),
                )?)
            })
        };
        let output = command.output();
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
        drop(program);
        let output = output.unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        return;
    }
    let output = command.output().unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

/// Compose files and units of services write them for values that were left out.
#[test]
fn empty_variables_are_unset() {
    let help = String::from_utf8(run(["run", "--help-all"]).stdout).unwrap();
    let named = help.split("[env: ").skip(1).filter_map(|rest| rest.split(['=', ']']).next());
    let all: Vec<&str> = named.filter(|name| name.starts_with("TERRACE_")).collect();
    assert!(all.len() > 60 && all.contains(&"TERRACE_SAMPLERS"), "{all:?}");
    let expected = greedy(&["--temp", "0", "--json"]).output().unwrap();
    let mut command = greedy(&["--temp", "0", "--json"]);
    // The tests' own are kept: they do not concern the answer.
    for name in all.iter().filter(|name| !matches!(**name, "TERRACE_THREADS" | "TERRACE_WARM_START")) {
        command.env(name, "");
    }
    let output =
        command.env("TERRACE_LOG", "").env("TERRACE_MANAGE", "").env("HF_ENDPOINT", "").output().unwrap();
    assert_eq!(json(&output)["tokens"], json(&expected)["tokens"]);
    // A file's value counts where the variable is empty, and help names the variable all the same.
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("config.toml");
    fs::write(&file, "ctx = 77").unwrap();
    let mut command = greedy(&["--json", "--config", text(&file)]);
    let output = command.env("TERRACE_CTX", "").output().unwrap();
    assert_eq!(json(&output)["plan"]["placement"]["context"]["tokens"], 77, "{}", stdout(&output));
    let output = terrace().args(["run", "--help"]).env("TERRACE_CTX", "").output().unwrap();
    assert!(stdout(&output).contains("[env: TERRACE_CTX="));
}

#[test]
fn wrong_variables_are_named() {
    for (name, value) in [("TERRACE_CTX", "much"), ("TERRACE_SAMPLERS", "top_q"), ("TERRACE_TEMP", "-1")] {
        let output = greedy(&[]).env(name, value).output().unwrap();
        let error = failure(&output, 2);
        assert!(
            error.contains(&format!("environment variable {name}: ")) && error.contains(value),
            "{error}"
        );
    }
    // What the command line says wrong is its own, and what it says right wins.
    let error = failure(&greedy(&["--ctx", "lots"]).env("TERRACE_CTX", "much").output().unwrap(), 2);
    assert!(!error.contains("TERRACE_CTX") && error.contains("lots"), "{error}");
    assert!(greedy(&["--ctx", "64"]).env("TERRACE_CTX", "much").output().unwrap().status.success());
}

#[test]
fn a_temperature_of_zero_is_greedy_whatever_the_samplers_are() {
    let tokens =
        |args: &[&str]| json(&greedy(&[args, &["--json"]].concat()).output().unwrap())["tokens"].clone();
    let expected = tokens(&["--temp", "0"]);
    for samplers in ["top_k", "", "top_k;top_p", "adaptive_p", "penalties;min_p"] {
        for seed in ["1", "2"] {
            let args = ["--temp", "0", "--samplers", samplers, "--seed", seed, "--adaptive-target", "-1"];
            assert_eq!(tokens(&args), expected, "{samplers}, {seed}");
        }
    }
    // With another sampler that has to be llama.cpp's.
    let biased = tokens(&["--temp", "0", "--logit-bias", "5-inf"]);
    for seed in ["1", "2"] {
        assert_eq!(
            tokens(&["--temp", "0", "--samplers", "top_k", "--logit-bias", "5-inf", "--seed", seed]),
            biased
        );
    }
    let server = Server::start(&bundled(), ["--ctx", "256"]);
    let ask = |samplers: &serde_json::Value, seed: u32| {
        let body = json!({
            "prompt": "In the beginning", "n_predict": 6, "temperature": 0, "samplers": samplers, "seed": seed,
        });
        server.post("/completion", &body).ok()["content"].clone()
    };
    let expected = ask(&json!(["temperature"]), 1);
    for seed in [1, 2] {
        assert_eq!(ask(&json!(["top_k"]), seed), expected);
        assert_eq!(ask(&json!([]), seed), expected);
    }
}

#[test]
fn negative_numbers_are_values() {
    assert!(greedy(&["--top-k", "-1"]).output().unwrap().status.success());
    for (args, part) in [
        (["--min-p", "-1"], "must be a number from 0 to 1"),
        (["--temp", "-1"], "must be a number of 0 or more"),
        (["--ctx", "-1"], "--ctx"),
        (["--typical", "-0.5"], "must be a number from 0 to 1"),
    ] {
        let error = failure(&greedy(&args).output().unwrap(), 2);
        assert!(error.contains(part) && !error.contains("unexpected argument"), "{error}");
    }
}

#[test]
fn byte_order_marks_are_no_text() {
    let dir = TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, format!("\u{feff}{text}")).unwrap();
        path
    };
    let answer = |args: &[&str]| {
        let model = bundled();
        let all = ["run", text(&model), "-n", "3", "--temp", "0"];
        let output = run(all.iter().chain(args));
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        stdout(&output).to_owned()
    };
    assert_eq!(answer(&["-p", "x", "--grammar-file", text(&file("g.gbnf", "root ::= \"b\"+"))]), "bbb\n");
    let schema = file("s.json", "{\"const\": 7}");
    assert!(answer(&["-p", "x", "--json-schema-file", text(&schema)]).starts_with('7'));
    let prompt = file("p.txt", "In the beginning");
    assert_eq!(answer(&["-f", text(&prompt)]), answer(&["-p", "In the beginning"]));
    let config = file("c.toml", "n = 1");
    assert!(
        terrace()
            .args(["--config", text(&config), "inspect", text(&bundled())])
            .output()
            .unwrap()
            .status
            .success()
    );
    let template = file("t.jinja", "{{ messages[0].content }}");
    let chat = answer(&["--chat", "-p", "In the beginning", "--chat-template-file", text(&template)]);
    assert_eq!(chat, answer(&["-p", "In the beginning"]));
    let recipe = file("r.txt", "ffn_up_exps=q8_0\n");
    let (model, out) = (bundled(), dir.path().join("o.gguf"));
    let words = [
        "quantize",
        text(&model),
        text(&out),
        "--type",
        "COPY",
        "--recipe",
        text(&recipe),
        "--allow-requantize",
        "--dry-run",
    ];
    let output = run(words);
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn zeros_in_grammars_are_refused() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("g.gbnf");
    fs::write(&file, "root ::= \"a\"+\0 rest").unwrap();
    let output = greedy(&["--grammar-file", text(&file)]).output().unwrap();
    assert!(failure(&output, 1).contains("NUL character at byte offset 13"));
    assert!(!stderr(&output).contains("--chat"), "{}", stderr(&output));
    let output = greedy(&["--grammar", "root ::= \"\\x00\""]).output().unwrap();
    assert!(failure(&output, 1).contains("no token has the NUL character"));
    let server = Server::start(&bundled(), ["--ctx", "256"]);
    for grammar in ["root ::= \"a\"+\0 rest", "root ::= \"\\x00\""] {
        let reply = server.post("/completion", &json!({"prompt": "a", "n_predict": 2, "grammar": grammar}));
        assert_eq!(reply.status, 400, "{grammar:?}: {}", reply.text);
        assert!(reply.text.contains("NUL"), "{}", reply.text);
    }
}

#[test]
fn templates_that_are_none_are_explained_by_the_parser() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("t.jinja");
    for (template, code, part) in [
        ("", 2, "t.jinja: the chat template is empty"),
        ("\u{feff}\n", 2, "t.jinja: the chat template is empty"),
        ("{% for %}", 1, "Expected"),
        ("{{ foo( }}", 1, "cannot parse the model's chat template: "),
        ("{{ 'a }}", 1, "unexpected end of input"),
    ] {
        fs::write(&file, template).unwrap();
        let output = greedy(&["--chat", "--chat-template-file", text(&file)]).output().unwrap();
        let error = failure(&output, code);
        assert!(error.to_lowercase().contains(&part.to_lowercase()), "{template:?}: {error}");
        assert!(!error.contains("std::exception") && !error.contains("GGML_ASSERT"), "{error}");
    }
    let error = failure(&greedy(&["--chat", "--chat-template", ""]).output().unwrap(), 2);
    assert_eq!(error, "the chat template is empty");
}

#[test]
fn names_need_not_be_utf8_and_may_have_commas() {
    let dir = TempDir::new().unwrap();
    let model = dir.path().join(OsStr::from_bytes(b"mod\xffel.gguf"));
    symlink(bundled(), &model).unwrap();
    let adapter = dir.path().join(OsStr::from_bytes(b"ad,apt\xffer.gguf"));
    let spec = AdapterSpec { weights: &["blk.1.attn_q.weight"], ..AdapterSpec::default() };
    let made = write_adapter(&spec, &bundled(), dir.path().join("adapter.gguf")).unwrap();
    fs::rename(made, &adapter).unwrap();
    let mut scaled = adapter.clone().into_os_string();
    scaled.push(":0.5");
    for lora in [adapter.as_os_str(), &scaled] {
        let words =
            ["run".as_ref(), model.as_os_str(), "-p".as_ref(), "x".as_ref(), "-n".as_ref(), "1".as_ref()];
        let output = terrace().args(words).args(["--json", "--lora"]).arg(lora).output().unwrap();
        assert_eq!(json(&output)["plan"]["adapters"].as_array().unwrap().len(), 1, "{lora:?}");
    }
    for command in ["inspect", "plan"] {
        let output = terrace().arg(command).arg(&model).arg("--json").output().unwrap();
        assert!(output.status.success(), "{command}: {}", stderr(&output));
    }
    let output = terrace().args(["run", "-p", "x", "-n", "1", "-m"]).arg(&model).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let gone = dir.path().join(OsStr::from_bytes(b"no\xff.gguf"));
    let error = failure(&terrace().arg("run").arg(gone).args(["-p", "x"]).output().unwrap(), 1);
    assert!(error.contains("no such file"), "{error}");
}

/// A copy of the bundled model of which two tokens are the same.
fn twice(dir: &TempDir) -> PathBuf {
    let mut bytes = fs::read(bundled()).unwrap();
    let key = b"tokenizer.ggml.tokens";
    let found = bytes.windows(key.len()).position(|window| window == key).unwrap();
    // The types of the value and of its elements, and their number.
    let mut at = found + key.len() + 4 + 4 + 8;
    let length = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    for _ in 0..10 {
        at += 8 + length(&bytes, at);
    }
    let first = bytes[at + 8..at + 8 + length(&bytes, at)].to_vec();
    let next = at + 8 + first.len();
    assert_eq!(length(&bytes, next), first.len());
    bytes[next + 8..next + 8 + first.len()].copy_from_slice(&first);
    let path = dir.path().join("twice.gguf");
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn headers_that_contradict_themselves_are_explained() {
    let dir = TempDir::new().unwrap();
    let repeated = twice(&dir);
    let (token, first, second) = gguf::repeated_token(&repeated).unwrap();
    let error = failure(&run(["run", text(&repeated), "-p", "x"]), 1);
    let part = format!("has the token `{token}` twice, as number {first} and as number {second}");
    assert!((first, second) == (10, 11) && error.contains(&part), "{error}");
    assert_eq!(gguf::repeated_token(&bundled()), None);
    let good = bundled();
    for used in [40, 0] {
        let path = dir.path().join("used.gguf");
        write_edited(&bundled(), &path, &[("qwen3moe.expert_used_count", Edit::Number(used))]).unwrap();
        let part = format!("`qwen3moe.expert_used_count` is {used}, but the model has 32 experts");
        for command in ["run", "plan"] {
            let words = [command, text(&path), if command == "run" { "-p" } else { "-f" }, text(&good)];
            let error = failure(&run(if command == "plan" { &words[..2] } else { &words[..] }), 1);
            assert!(error.contains(&part), "{command}: {error}");
        }
        let shown = run(["inspect", text(&path)]);
        assert!(
            stdout(&shown).contains(&format!("32 per layer, {used} used (impossible)")),
            "{}",
            stdout(&shown)
        );
        let shown = json(&run(["inspect", text(&path), "--json"]));
        assert_eq!((&shown["experts_used"], &shown["impossible"]), (&json!(used), &json!(part)));
    }
    assert!(json(&run(["inspect", text(&bundled()), "--json"])).get("impossible").is_none());
}

#[test]
fn shards_that_were_joined_are_recognised() {
    let dir = TempDir::new().unwrap();
    let (model, parts) = (tiny(&dir), dir.path().join("parts"));
    fs::create_dir(&parts).unwrap();
    // Without a type, the file is split as it is.
    let output = run(["quantize", text(&model), &format!("{}/", text(&parts)), "--split-tensors"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let mut shards: Vec<PathBuf> = fs::read_dir(&parts).unwrap().map(|file| file.unwrap().path()).collect();
    shards.sort();
    let whole = gguf::read(&shards[0]).unwrap();
    let types = |file: &terrace_model::ModelFile| {
        let mut all: Vec<_> = file.tensors.iter().map(|one| (one.name.clone(), one.ty.id)).collect();
        all.sort();
        all
    };
    assert_eq!(types(&whole), types(&gguf::read(&model).unwrap()));
    let joined: Vec<u8> = shards.iter().flat_map(|shard| fs::read(shard).unwrap()).collect();
    let first = fs::metadata(&shards[0]).unwrap().len();
    for name in ["merged.gguf", shards[0].file_name().unwrap().to_str().unwrap()] {
        let path = dir.path().join(name);
        fs::write(&path, &joined).unwrap();
        for command in ["run", "inspect", "plan"] {
            let words = [command, text(&path), "-p", "x"];
            let output = run(if command == "run" { &words[..] } else { &words[..2] });
            let error = failure(&output, 1);
            assert!(
                error.contains(&format!("another GGUF file begins at offset {first}")),
                "{command}: {error}"
            );
            assert!(stderr(&output).contains("--type COPY"), "{}", stderr(&output));
        }
    }
}

/// Runs a command with a limit of its process.
fn limited(mut command: Command, resource: rustix::process::Resource, most: u64) -> Command {
    // SAFETY: between fork and exec only system calls are made.
    unsafe {
        command.pre_exec(move || {
            let limit = rustix::process::Rlimit { current: Some(most), maximum: Some(most) };
            Ok(rustix::process::setrlimit(resource, limit)?)
        });
    }
    command
}

#[test]
fn limits_of_the_process_are_named() {
    use rustix::process::Resource::{Fsize, Nofile};
    for most in 4..24 {
        let mut command = greedy(&["--stream", "experts", "--ram-budget", "8MiB"]);
        command.stdin(std::process::Stdio::null());
        let output = limited(command, Nofile, most).output().unwrap();
        if !output.status.success() {
            let told = stderr(&output);
            let error = told.lines().find(|line| line.starts_with("error: ") || line.contains("error while"));
            let error = error.unwrap_or_else(|| panic!("{most}: {told}")).to_lowercase();
            assert!(
                error.contains("too many open files") || error.contains("cannot open shared object"),
                "{most}: {told}"
            );
        }
    }
    let (dir, model) = (TempDir::new().unwrap(), bundled());
    let out = dir.path().join("out.gguf");
    let mut command = terrace();
    command.args(["quantize", text(&model), text(&out), "--type", "copy"]);
    let output = limited(command, Fsize, 1 << 20).output().unwrap();
    assert!(failure(&output, 1).contains("File too large") && stderr(&output).contains("ulimit -f"));
    assert!(!out.exists());
    // The learn file is what the run was for.
    let learned = dir.path().join("learned.json");
    let output = limited(greedy(&["--learn-to", text(&learned)]), Fsize, 64).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("error: cannot write the learn file"), "{}", stderr(&output));
    assert!(!learned.exists());
}

#[test]
fn quantising_again_is_refused_with_what_it_would_do() {
    let (dir, model) = (TempDir::new().unwrap(), bundled());
    let out = dir.path().join("o.gguf");
    let refused = |ty: &str| failure(&run(["quantize", text(&model), text(&out), "--type", ty]), 1);
    let error = refused("F32");
    assert!(error.contains("f32 takes more room and gives nothing back"), "{error}");
    let error = refused("Q4_0");
    assert!(error.contains("loses more than either alone"), "{error}");
}
