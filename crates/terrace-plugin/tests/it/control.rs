//! The control socket: what it tells and does, and that nothing that comes in disturbs the program.

use crate::host::{bundled, load, places, plug_in, set, trace};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_testkit::{Arch, Spec, write};

/// Time for what should happen soon.
const SOON: Duration = Duration::from_secs(60);

pub fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Has the plug-in listen in a folder. Paths of sockets are short, and relative ones are possible.
pub fn listen_in(dir: &TempDir) -> PathBuf {
    std::env::set_current_dir(dir.path()).unwrap();
    set("TERRACE_CONTROL", "./socket");
    PathBuf::from("./socket")
}

fn connect(socket: &Path) -> BufReader<UnixStream> {
    let stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    BufReader::new(stream)
}

fn answer(stream: &mut BufReader<UnixStream>) -> Value {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
}

pub fn ask(socket: &Path, request: &Value) -> Value {
    let mut stream = connect(socket);
    stream.get_mut().write_all(format!("{request}\n").as_bytes()).unwrap();
    answer(&mut stream)
}

pub fn stats(socket: &Path) -> Value {
    ask(socket, &json!({"version": 1, "command": "stats"}))["ok"].take()
}

#[test]
fn it_tells_of_models_and_of_those_that_were_freed() {
    let dir = folder();
    let socket = listen_in(&dir);
    set("TERRACE_RAM_BUDGET", "3MiB");
    for (name, file) in [("STATS", "s.json"), ("TRACE", "t.trace"), ("TIMELINE", "t.json")] {
        set(&format!("TERRACE_{name}"), file);
    }
    plug_in();
    assert!(!socket.exists(), "there is nothing to tell yet");
    let model = load(&bundled(), false);
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    trace(&model);
    let report = stats(&socket);
    assert_eq!((&report["version"], &report["budget"]), (&json!(1), &json!(3 << 20)));
    assert_eq!(report["process"], std::process::id());
    let told = &report["models"][0];
    assert_eq!(told["path"], bundled().to_str().unwrap());
    assert_eq!((&told["plan"]["managed_tensors"], &told["epoch"]), (&json!(18), &json!(0)));
    let misses = told["store"]["misses"].as_u64().unwrap();
    assert!(misses > 0 && told["store"]["bytes_read"].as_u64().unwrap() > 0, "{told}");
    assert_eq!(told["layers"].as_array().unwrap().len(), 6);

    drop(model);
    let report = stats(&socket);
    assert_eq!(report["models"], json!([]));
    assert_eq!(report["freed"][0]["store"]["misses"], misses);
    let written: Value = serde_json::from_slice(&std::fs::read("s.json").unwrap()).unwrap();
    assert_eq!(written["freed"], report["freed"]);
    let timeline: Value = serde_json::from_slice(&std::fs::read("t.json").unwrap()).unwrap();
    assert!(timeline["traceEvents"].as_array().unwrap().len() > 18, "{timeline}");
    let traced = terrace_model::trace::Trace::read(&std::fs::read("t.trace").unwrap()).unwrap();
    assert_eq!(traced.header.tensors.len(), 18);
    // A second model has files of its own.
    drop(load(&bundled(), true));
    assert!(Path::new("t.trace.2").exists() && Path::new("t.json.2").exists());
}

#[test]
fn nothing_that_comes_in_disturbs_the_program() {
    let dir = folder();
    let socket = listen_in(&dir);
    set("TERRACE_RAM_BUDGET", "3MiB");
    let expected = trace(&load(&bundled(), false));
    plug_in();
    let model = load(&bundled(), false);

    let mut stream = connect(&socket);
    let deep = "[".repeat(60_000);
    let words =
        ["", "garbage", "\u{0}\u{7f}", "{}", "[1]", "null", &deep, "{\"version\":2,\"command\":\"stats\"}"];
    let of_version_1 = [
        json!({"version": 1}),
        json!({"version": 1, "command": "stop"}),
        json!({"version": 1, "command": 7}),
        json!({"version": 1, "command": "budget"}),
        json!({"version": 1, "command": "budget", "bytes": -1}),
        json!({"version": 1, "command": "apply"}),
        json!({"version": 1, "command": "apply", "learned": {"layers": 7}}),
    ];
    let all = words.into_iter().map(str::to_owned).chain(of_version_1.iter().map(Value::to_string));
    for line in all {
        stream.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
        let answer = answer(&mut stream);
        assert!(
            answer["version"] == 1 && answer["error"].is_string() && answer["ok"].is_null(),
            "{line}: {answer}"
        );
    }
    stream.get_mut().write_all(b"\xff\xfe\n").unwrap();
    assert!(answer(&mut stream)["error"].is_string());

    // More than a line may have: an answer, and the end. The client may still be writing then.
    let _ = stream.get_mut().write_all(&vec![b'x'; 5 << 20]);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    drop(stream);

    // Clients that say nothing, that stop in the middle, and that never read.
    let mut held: Vec<UnixStream> = (0..7).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    for (index, client) in held.iter_mut().enumerate() {
        let _ = client.write_all(if index % 2 == 0 { b"{\"version\"" } else { b"\n\n\n" });
    }
    assert!(trace(&model) == expected, "other logits while clients hang");
    // They have all places but one, and what comes beyond is told so.
    let mut refused = 0;
    for _ in 0..40 {
        held.push(UnixStream::connect(&socket).unwrap());
    }
    for client in &held[7..] {
        client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut line = String::new();
        refused +=
            usize::from(BufReader::new(client).read_line(&mut line).is_ok() && line.contains("others"));
    }
    assert!(refused > 0);
    drop(held);
    // When they are gone there is room again.
    let until = Instant::now() + SOON;
    while stats(&socket)["models"][0].is_null() {
        assert!(Instant::now() < until, "no place became free");
    }
    assert!(trace(&model) == expected, "other logits");
}

#[test]
fn a_budget_is_set_while_the_program_runs() {
    let dir = folder();
    let socket = listen_in(&dir);
    set("TERRACE_RAM_BUDGET", "12MiB");
    let expected = trace(&load(&bundled(), false));
    plug_in();
    let model = load(&bundled(), false);
    let capacity = || stats(&socket)["models"][0]["store"]["budget_now"].as_u64().unwrap();
    let before = capacity();
    trace(&model);
    for (budget, fewer) in [(3u64 << 20, true), (1 << 20, true), (u64::MAX, false)] {
        let answer = ask(&socket, &json!({"version": 1, "command": "budget", "bytes": budget}))["ok"].take();
        let told = &answer["models"][0];
        let number = |name: &str| told[name].as_u64().unwrap();
        assert!((number("least_slots")..=number("most_slots")).contains(&number("slots")), "{answer}");
        assert!(told["problem"].is_null(), "{answer}");
        let now = capacity();
        assert!(now <= number("slots"), "{now}: {answer}");
        assert_eq!((now < before, now == before), (fewer, !fewer), "{budget}: {now} of {before}");
        assert!(trace(&model) == expected, "other logits with {budget}");
    }
}

#[test]
fn tensors_of_a_file_that_was_replaced_are_taken_over_between_graphs() {
    let dir = folder();
    let socket = listen_in(&dir);
    let path = write(&Spec { layers: 2, ..Spec::new(Arch::Mixtral) }, "model.gguf").unwrap();
    let path = path.canonicalize().unwrap();
    let first = std::fs::read(&path).unwrap();
    // The halves of a tensor change places.
    let changed = |part: &str| {
        let file = terrace_ggml::gguf::read(&path).unwrap();
        let info = file.tensors.iter().find(|tensor| tensor.name.contains(part)).unwrap();
        let (start, half) = (info.extent.offset as usize, info.extent.len as usize / 2);
        let mut bytes = first.clone();
        bytes[start..start + 2 * half].rotate_left(half);
        bytes
    };
    let (experts, held) = (changed("blk.1.ffn_down_exps"), changed("blk.1.attn_q"));
    let replace = |bytes: &[u8]| {
        std::fs::write("new.gguf", bytes).unwrap();
        std::fs::rename("new.gguf", &path).unwrap();
    };
    let expected = trace(&load(&path, false));
    replace(&experts);
    let expected_then = trace(&load(&path, false));
    assert!(expected != expected_then);
    replace(&first);
    set("TERRACE_STREAM", "experts");
    set("TERRACE_RAM_BUDGET", &(first.len() * 3 / 5).to_string());
    plug_in();
    let model = load(&path, false);
    assert!(places(&model).contains("TERRACE") && trace(&model) == expected);

    let reload = || {
        // Not everything that was just written can be told from what is being written.
        let until = Instant::now() + SOON;
        loop {
            let answer = ask(&socket, &json!({"version": 1, "command": "reload"}));
            let again = answer["error"].as_str().is_some_and(|error| error.contains("try again"));
            if !again || Instant::now() > until {
                return answer;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    assert_eq!(reload()["ok"], json!({"models": []}));
    replace(&experts);
    // The program computes nothing now.
    let waiting = reload()["ok"].take();
    assert_eq!(
        (&waiting["models"][0]["pending"], &waiting["models"][0]["tensors"]),
        (&json!(true), &json!(6))
    );
    assert_eq!(stats(&socket)["models"][0]["epoch"], 0);
    assert!(trace(&model) == expected_then, "other logits after the reload");
    assert_eq!(stats(&socket)["models"][0]["epoch"], 1);
    assert_eq!(reload()["ok"], json!({"models": []}));

    for (bytes, why) in [
        (&held, "the program holds it"),
        (&first[..first.len() / 2].to_vec(), "is no model"),
        (&b"GGUF".to_vec(), "is no model"),
    ] {
        replace(bytes);
        let error = reload()["error"].take();
        assert!(error.as_str().unwrap().contains(why), "{error}");
        assert!(trace(&model) == expected_then, "other logits after {error}");
    }
    replace(&experts);
    assert_eq!(reload()["ok"]["models"][0]["tensors"], 6);
    assert!(trace(&model) == expected_then);
    std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(&[0]).unwrap();
    let error = reload()["error"].take();
    assert!(error.as_str().unwrap().contains("was written to"), "{error}");
    assert!(trace(&model) == expected_then);
    assert_eq!(stats(&socket)["models"][0]["epoch"], 2);
}
