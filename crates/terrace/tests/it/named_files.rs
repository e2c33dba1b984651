//! Files that options name: those that are written never replace what is not theirs, and those that are
//! read are never waited for. The options are those of `data/files.txt`, which a test of the program
//! compares with the definitions of all commands.

use crate::common::{failure, json, run, stderr, terrace, tiny};
use crate::server::Server;
use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_testkit::thorough;

/// Kind, option and commands of each line.
fn listed(kind: &str) -> Vec<(&'static str, Vec<&'static str>)> {
    let lines = include_str!("../data/files.txt").lines().filter(|line| !line.starts_with('#'));
    let words = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
    let of_kind = words.filter(|words| words.first() == Some(&kind));
    let listed: Vec<_> = of_kind.map(|words| (words[1], words[2..].to_vec())).collect();
    assert!(!listed.is_empty(), "{kind}");
    listed
}

/// A model, a text and folders for commands that need them.
struct Fixture {
    dir: TempDir,
    model: String,
    text: String,
}

impl Fixture {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let model = tiny(&dir).to_str().unwrap().to_owned();
        let text = dir.path().join("text").to_str().unwrap().to_owned();
        fs::write(&text, "In the beginning God created the heaven and the earth. ".repeat(20)).unwrap();
        let learned =
            r#"{"enabled":false,"mode":"off","schema":"llama.cpp.moe_layer_opt_perf.v1","layers":[]}"#;
        fs::write(dir.path().join("learned"), learned).unwrap();
        fs::write(dir.path().join("requests"), "{\"prompt\": \"hi\", \"max_tokens\": 1}\n").unwrap();
        Self { dir, model, text }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// The words of a command with this option, and with what the command needs beside it.
    fn words(&self, command: &str, option: &str, value: &str) -> Vec<String> {
        let (model, text) = (self.model.as_str(), self.text.as_str());
        let own = self.path(if command == "experts.diff" { "learned" } else { "own" });
        let requests = self.path("requests");
        // An option of every command.
        let command = if command == "all" { "plan" } else { command };
        let prefix = match option {
            "--cache-policy" => "static:",
            "--try" => "low=",
            _ => "",
        };
        let value = &format!("{prefix}{value}");
        let mut words: Vec<&str> = command.split('.').collect();
        let is = |name: &str| option.trim_start_matches('-') == name;
        let rest: &[&str] = match command {
            "run" => &[model, "-n", "1"],
            "trace.record" => &[model, "-n", "1"],
            "serve" => &[model, "--port", "0"],
            "batch" => &[model],
            "plan" if is("worker") => &[model, "--workers", "1"],
            "bench" | "optimize" | "plan" | "inspect" => &[model],
            "perplexity" | "calibrate" | "experts.learn" => &[model],
            "quantize" => &[model, "--type", "copy"],
            "sweep" => &[model, "--type", "q4_K", "--budget", "1GiB"],
            "experts.show" | "experts.diff" | "trace.replay" | "experts.apply" => &[],
            "experts.convert" => &["--to", "counts"],
            "machine" if is("model") || option == "PATH" => &["--types", "q4_K", "--seconds", "1"],
            "machine" => &["--no-storage"],
            "llama" | "man" | "worker" | "attach" | "iobench" | "doctor" | "top" => &[],
            other => panic!("which words does `{other}` need?"),
        };
        // Positions come first.
        let positions: &[(&str, &[&str])] = &[
            ("experts.convert", &["FILE", "OUT"]),
            ("experts.diff", &["BEFORE", "AFTER"]),
            ("experts.show", &["FILE"]),
            ("experts.apply", &["FILE"]),
            ("trace.replay", &["FILE"]),
            ("quantize", &["OUT"]),
        ];
        let mut places: Vec<&str> = Vec::new();
        for (_, names) in positions.iter().filter(|(of, _)| *of == command) {
            places.extend(names.iter().map(|name| if option == *name { value } else { own.as_str() }));
        }
        let model_first = command == "quantize";
        let has_model = rest.first() == Some(&model);
        let rest = if has_model && option == "MODEL" { &rest[1..] } else { rest };
        if model_first {
            words.extend(&rest[..1]);
            words.extend(&places);
            words.extend(&rest[1..]);
        } else {
            words.extend(&places);
            words.extend(rest);
        }
        if option == "MODEL" || (option == "PATH" && places.is_empty()) {
            words.push(value);
        } else if option.starts_with("--") {
            words.extend([option, value]);
        }
        if command == "batch" {
            words.push(if option == "REQUESTS" { value } else { &requests });
            if !is("output") {
                words.extend(["--output", own.as_str()]);
            }
        }
        let needs_text = ["perplexity", "calibrate", "sweep", "experts.learn"];
        if needs_text.contains(&command) && !is("file") {
            words.extend(["--file", text]);
        }
        if ["sweep", "experts.learn"].contains(&command) && !is("out") {
            words.extend(["--out", own.as_str()]);
        }
        if command == "trace.record" && !is("output") {
            words.extend(["--output", own.as_str()]);
        }
        if ["run", "trace.record"].contains(&command) && !is("file") {
            words.extend(["-p", "hi"]);
        }
        if is("image") {
            words.extend(["--mmproj", model]);
        }
        if is("from") || is("imatrix") && command == "sweep" {
            words.extend(["--type", "q5_K"]);
        }
        if is("simulated-memory") {
            words.extend(["--stream", "all"]);
        }
        if is("ssl-cert-file") || is("ssl-key-file") {
            // Both are read before they are compared.
            let other = if is("ssl-cert-file") { "--ssl-key-file" } else { "--ssl-cert-file" };
            words.extend([other, value]);
        }
        words.into_iter().map(String::from).collect()
    }
}

/// What must not change of a file.
fn state(path: &Path) -> (Vec<u8>, u32, i64, i64, u64) {
    let meta = path.metadata().unwrap();
    (fs::read(path).unwrap(), meta.mode(), meta.mtime(), meta.mtime_nsec(), meta.ino())
}

#[test]
fn nothing_but_files_of_the_kind_is_replaced() {
    let scene = Fixture::new();
    let model = PathBuf::from(&scene.model);
    let [hard, soft, text, other] =
        ["hard.gguf", "soft.gguf", "notes.txt", "notes.json"].map(|name| scene.dir.path().join(name));
    fs::hard_link(&model, &hard).unwrap();
    symlink("tiny.gguf", &soft).unwrap();
    fs::write(&text, "my notes of ten years\n").unwrap();
    fs::write(&other, "{\"version\":1,\"name\":\"of another program\",\"models\":[]}\n").unwrap();
    let all = [&model, &hard, &soft, &text, &other];
    let before = all.map(|path| state(path));
    for mode in [0o644, 0o444] {
        fs::set_permissions(&model, Permissions::from_mode(mode)).unwrap();
        for (option, commands) in listed("write") {
            for command in commands {
                // One right is enough for what does not depend on them.
                let targets = if mode == 0o444 { &all[..1] } else { &all[..] };
                for target in targets {
                    let words = scene.words(command, option, target.to_str().unwrap());
                    let output = run(&words);
                    assert!(!output.status.success(), "{words:?}");
                    let error = failure(&output, 1);
                    assert!(error.contains(target.to_str().unwrap()), "{words:?}: {error}");
                }
            }
        }
    }
    fs::set_permissions(&model, Permissions::from_mode(0o644)).unwrap();
    for (path, before) in all.iter().zip(before) {
        let now = state(path);
        assert!((&now.0, now.2, now.3, now.4) == (&before.0, before.2, before.3, before.4), "{path:?}");
    }
    assert!(soft.symlink_metadata().unwrap().is_symlink());
}

#[test]
fn files_of_the_kind_are_replaced_again() {
    let scene = Fixture::new();
    let own = |name: &str| scene.path(name);
    let (model, text) = (scene.model.as_str(), scene.text.as_str());
    let [timeline, learn, kept, trace, plan, grid, base, counts, skip, out] = [
        "timeline.json",
        "learn.json",
        "kept",
        "trace",
        "plan.svg",
        "grid.svg",
        "base.kld",
        "counts.json",
        "skip.json",
        "out.gguf",
    ]
    .map(own);
    let man = own("man");
    let chunks = ["--chunks", "1", "--ctx", "32"];
    let measured = |command: &'static str, option: &'static str, file: &str| {
        [&[command, model, "-f", text, option, file][..], &chunks]
            .concat()
            .into_iter()
            .map(String::from)
            .collect()
    };
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
    let budget = ["--stream", "experts", "--ram-budget", "8MiB"];
    let commands: Vec<Vec<String>> = vec![
        words(
            &[
                &["run", model, "-p", "a", "-n", "2", "--timeline", &timeline, "--learn-to", &learn][..],
                &budget,
            ]
            .concat(),
        ),
        words(&["run", model, "-p", "a", "-n", "2", "--prompt-cache", &kept]),
        words(&[&["trace", "record", model, "-p", "a", "-n", "2", "-o", &trace][..], &budget].concat()),
        words(&["plan", model, "--svg", &plan]),
        words(&["experts", "show", &learn, "--svg", &grid]),
        words(&["experts", "convert", &learn, &counts, "--to", "counts"]),
        measured("perplexity", "--save-logits", &base),
        [measured("calibrate", "--out", &skip), words(&["--skip-layers"])].concat(),
        words(&["man", "--out", &man]),
        words(&["quantize", model, &out, "--type", "copy", "--overwrite"]),
    ];
    for words in &commands {
        for _ in 0..2 {
            let output = run(words);
            assert!(output.status.success(), "{words:?}: {}", stderr(&output));
        }
    }
    // A model is not replaced without being asked to.
    let error = failure(&run(["quantize", model, &out, "--type", "copy"]), 1);
    assert!(error.contains("out.gguf") && error.contains("exists"), "{error}");
    // Two outputs with one path.
    let twice =
        failure(&run(["run", model, "-p", "a", "--timeline", &own("x"), "--learn-to", &own("./x")]), 1);
    assert!(twice.contains("two outputs"), "{twice}");
}

/// Runs a command with a limit for its memory, and ends it if it takes too long.
fn bounded(words: &[String]) -> Output {
    let home = TempDir::new().unwrap();
    bounded_at(home.path(), words)
}

/// Runs a command whose user directories are in `home`, as [`bounded`] does.
fn bounded_at(home: &Path, words: &[String]) -> Output {
    const MAX_TIME: Duration = Duration::from_secs(60);
    let mut command: Command = terrace();
    command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("HF_ENDPOINT", "http://127.0.0.1:1").env("HF_HOME", home.join("hf"));
    command.env("XDG_CONFIG_HOME", home.join("config")).env("XDG_CACHE_HOME", home.join("cache"));
    // SAFETY: between fork and exec only a system call is made.
    unsafe {
        command.pre_exec(|| {
            let most = Some(8 << 30);
            let limit = rustix::process::Rlimit { current: most, maximum: most };
            Ok(rustix::process::setrlimit(rustix::process::Resource::As, limit)?)
        });
    }
    let mut child = command.spawn().unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > MAX_TIME {
            child.kill().unwrap();
            let output = child.wait_with_output().unwrap();
            panic!("{words:?} waits: {}", stderr(&output));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().unwrap()
}

#[test]
fn pipes_and_devices_are_not_read_as_files() {
    let scene = Fixture::new();
    let [pipe, zero] = ["pipe", "zero"].map(|name| scene.path(name));
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, rustix::fs::Mode::from_raw_mode(0o600), 0).unwrap();
    symlink("/dev/zero", &zero).unwrap();
    let mut faults = Vec::new();
    for (option, commands) in listed("read") {
        for command in &commands[..thorough(1, commands.len())] {
            for path in [&pipe, &zero] {
                let words = scene.words(command, option, path);
                let output = bounded(&words);
                let text = stderr(&output);
                let errors: Vec<_> = text.lines().filter(|line| line.starts_with("error: ")).collect();
                let named = errors.len() == 1 && errors[0].contains(path.as_str());
                let failed = output.status.code().is_some_and(|code| code != 0);
                if !failed || !named || text.contains("panicked") {
                    faults.push(format!("{}: {:?}: {text}", words.join(" "), output.status));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn open_pipes_are_read_where_texts_are_wanted() {
    let scene = Fixture::new();
    let script = r#"exec "$0" run "$1" -n 2 --json --file <(printf 'In the beginning') \
        --grammar-file <(printf 'root ::= "a"+')"#;
    let mut command = terrace();
    let program = command.get_program().to_owned();
    let mut shell = Command::new("bash");
    shell.args(["-c", script]).arg(program).arg(&scene.model);
    for (name, value) in command.stdin(Stdio::null()).get_envs() {
        value.map(|value| shell.env(name, value));
    }
    let report = json(&shell.output().unwrap());
    assert!(report["tokens"].as_array().is_some_and(|tokens| !tokens.is_empty()), "{report}");
    // Stdin under its name, which is limited as well.
    let mut child = terrace()
        .args(["run", &scene.model, "-n", "1", "--file", "/dev/stdin"])
        .stdin(fs::File::open("/dev/zero").unwrap())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(!child.wait().unwrap().success() && text.contains("too many bytes"), "{text}");
}

#[test]
fn clients_replace_only_slot_files() {
    let scene = Fixture::new();
    let folder = scene.dir.path().join("slots");
    fs::create_dir(&folder).unwrap();
    let outside = scene.dir.path().join("outside");
    fs::write(&outside, "TERRACE\x01 of another folder").unwrap();
    fs::hard_link(&scene.model, folder.join("model.gguf")).unwrap();
    symlink(&outside, folder.join("link")).unwrap();
    symlink("nowhere", folder.join("dangling")).unwrap();
    fs::write(folder.join("notes"), "my notes").unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    let pipe = folder.join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, rustix::fs::Mode::from_raw_mode(0o600), 0).unwrap();
    let before = [&outside, Path::new(&scene.model), &folder.join("notes")].map(state);
    let server = Server::start(
        Path::new(&scene.model),
        ["--slot-save-path", folder.to_str().unwrap(), "--ctx", "128"],
    );
    server.post("/completion", &serde_json::json!({"prompt": "a b c", "n_predict": 2, "id_slot": 0})).ok();
    let act = |action: &str, name: &str| {
        server.post(&format!("/slots/0?action={action}"), &serde_json::json!({"filename": name}))
    };
    for name in ["model.gguf", "link", "dangling", "notes", "pipe"] {
        for action in ["save", "restore"] {
            let error = act(action, name).error(400);
            assert!(
                error["message"].as_str().is_some_and(|text| text.contains(name)),
                "{action} {name}: {error}"
            );
        }
    }
    for _ in 0..2 {
        act("save", "mine").ok();
    }
    act("restore", "mine").ok();
    let now = [&outside, Path::new(&scene.model), &folder.join("notes")].map(state);
    assert!(before == now);
    assert!(!scene.dir.path().join("nowhere").exists() && !folder.join("nowhere").exists());
}

#[test]
fn pipes_in_the_place_of_kept_files_are_not_waited_for() {
    let scene = Fixture::new();
    let home = scene.dir.path();
    let fifo = |path: PathBuf| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        path
    };
    let run = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        bounded_at(home, &words)
    };
    // The description of the machine is not used; the configuration file is an error.
    let profile = fifo(home.join("config/terrace/profile.json"));
    let output = run(&["plan", &scene.model]);
    assert!(output.status.success() && stderr(&output).contains("a pipe, not a regular file"), "{output:?}");
    fs::remove_file(profile).unwrap();
    let configuration = fifo(home.join("config/terrace/config.toml"));
    let output = run(&["plan", &scene.model]);
    assert!(!output.status.success() && stderr(&output).contains("a pipe, not a regular file"), "{output:?}");
    fs::remove_file(configuration).unwrap();
    // The reference of a hub's repository, and a snapshot whose links lead round in a circle.
    let repository = home.join("hf/hub/models--a--b");
    let reference = fifo(repository.join("refs/main"));
    let output = run(&["inspect", "hf:a/b"]);
    assert!(!output.status.success(), "{output:?}");
    fs::remove_file(&reference).unwrap();
    fs::write(&reference, "0123").unwrap();
    let snapshot = repository.join("snapshots/0123");
    fs::create_dir_all(&snapshot).unwrap();
    for name in ["x", "y"] {
        symlink(".", snapshot.join(name)).unwrap();
    }
    let output = run(&["inspect", "hf:a/b"]);
    assert!(!output.status.success(), "{output:?}");
    // The lock of a worker's cache.
    let cache = home.join("worker");
    fifo(cache.join("lock"));
    let output = run(&["worker", "--listen", "127.0.0.1:0", "--cache", cache.to_str().unwrap()]);
    assert!(!output.status.success() && stderr(&output).contains("worker"), "{output:?}");
}
