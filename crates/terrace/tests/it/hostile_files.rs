//! Files beside a model, as an attacker would write them: each run ends in one line and a status that
//! is not 0, or works. None is killed by a signal, hangs, or takes more than its share of memory.

use crate::common::{bundled, stdout, terrace, tiny};
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_testkit::{
    AdapterSpec, ProjectorKind, ProjectorSpec, mutated, picture, thorough, write_adapter, write_projector,
};

/// Memory of a process beside its mapped files.
const MEMORY: u64 = 3 << 30;
/// A run takes a second.
const MAX_WAIT: Duration = Duration::from_secs(240);
/// Bytes on stderr: an error, a hint and some warnings.
const MAX_TEXT: usize = 30_000;

/// Runs a command to its end, and asserts that it ends well or in one line.
#[track_caller]
fn ends(mut command: Command, what: &str) {
    command.env("RUST_BACKTRACE", "0").stdout(Stdio::null()).stderr(Stdio::piped());
    // SAFETY: between fork and exec only a system call is made.
    unsafe {
        command.pre_exec(|| {
            let limit = rustix::process::Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) };
            Ok(rustix::process::setrlimit(rustix::process::Resource::Data, limit)?)
        });
    }
    let mut process = command.spawn().unwrap();
    let mut pipe = process.stderr.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = pipe.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = process.try_wait().unwrap() {
            break status;
        }
        if begin.elapsed() > MAX_WAIT {
            process.kill().unwrap();
            panic!("{what}: has not ended");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let text = reader.join().unwrap();
    assert!(text.len() < MAX_TEXT, "{what}: {} bytes on stderr", text.len());
    assert_eq!(status.signal(), None, "{what}: {text}");
    assert!(!text.contains("panicked") && !text.contains("terminate called"), "{what}: {text}");
    assert!(!text.contains(['\u{202e}', '\u{9b}']), "{what}: {text}");
    let errors = text.lines().filter(|line| line.starts_with("error: ")).count();
    match status.code() {
        Some(0) => assert_eq!(errors, 0, "{what}: {text}"),
        Some(1 | 2) => assert_eq!(errors, 1, "{what}: {text}"),
        other => panic!("{what}: {other:?}: {text}"),
    }
}

/// Runs the program with each of some broken forms of a file.
fn each(file: &Path, seeds: u64, made: impl Fn(u64) -> Vec<u8>, args: &[&OsStr], home: Option<&Path>) {
    for seed in 0..seeds {
        fs::write(file, made(seed)).unwrap();
        let mut command = terrace();
        command.args(args);
        if let Some(home) = home {
            command.env("HOME", home);
        }
        ends(command, &format!("seed {seed} of {}", file.display()));
    }
}

fn run_with<'a>(model: &'a Path, option: &'a str, file: &'a Path) -> Vec<&'a OsStr> {
    let mut args: Vec<&OsStr> = ["run", "-p", "hi", "-n", "2"].map(OsStr::new).to_vec();
    args.extend([model.as_os_str(), OsStr::new(option), file.as_os_str()]);
    args
}

#[test]
fn adapters() {
    let dir = TempDir::new().unwrap();
    let (model, file) = (bundled(), dir.path().join("adapter.gguf"));
    let weights = ["blk.0.ffn_up_exps.weight", "blk.1.ffn_down_exps.weight", "blk.1.attn_q.weight"];
    let spec = AdapterSpec { weights: &weights, ..AdapterSpec::default() };
    let good = fs::read(write_adapter(&spec, &model, &file).unwrap()).unwrap();
    each(
        &file,
        thorough(12, 400),
        |seed| mutated::gguf(&good, seed),
        &run_with(&model, "--lora", &file),
        None,
    );
}

#[test]
fn projectors() {
    let dir = TempDir::new().unwrap();
    let (model, file, image) = (tiny(&dir), dir.path().join("mmproj.gguf"), dir.path().join("picture.png"));
    fs::write(&image, picture(48, 40, 1)).unwrap();
    let width = terrace_ggml::gguf::read(&model).unwrap().arch_u64("embedding_length").unwrap();
    for kind in [ProjectorKind::Mlp, ProjectorKind::Gemma3, ProjectorKind::Qwen2Vl] {
        let spec = ProjectorSpec { kind, width, seed: 1 };
        let good = fs::read(write_projector(&spec, &file).unwrap()).unwrap();
        let mut args = run_with(&model, "--mmproj", &file);
        args.extend([OsStr::new("--image"), image.as_os_str()]);
        each(&file, thorough(5, 200), |seed| mutated::gguf(&good, seed), &args, None);
    }
}

#[test]
fn importance_matrices_and_recipes() {
    let dir = TempDir::new().unwrap();
    let model = tiny(&dir);
    let header = terrace_ggml::gguf::read(&model).unwrap();
    let matrices: Vec<_> =
        header.tensors.iter().filter(|t| t.name.starts_with("blk.") && t.shape.dims() > 1).collect();
    let columns = |t: &terrace_model::TensorInfo| vec![1.0f32; (t.shape.0[0] * t.shape.0[2]) as usize];
    let mut legacy = (matrices.len() as i32).to_le_bytes().to_vec();
    let mut newer = terrace_ggml::gguf::write::Header::new();
    newer.set("imatrix.datasets", vec!["text".to_owned()]).unwrap();
    newer.set("imatrix.chunk_count", 1u32).unwrap();
    newer.set("imatrix.chunk_size", 512u32).unwrap();
    let mut data = Vec::new();
    for tensor in &matrices {
        let values = columns(tensor);
        legacy.extend((tensor.name.len() as i32).to_le_bytes());
        legacy.extend(tensor.name.as_bytes());
        legacy.extend(1i32.to_le_bytes());
        legacy.extend((values.len() as i32).to_le_bytes());
        legacy.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        let [columns, _, experts, _] = tensor.shape.0;
        let f32 = terrace_testkit::WeightType::F32;
        for (suffix, width) in [("in_sum2", columns), ("counts", 1)] {
            let shape = terrace_model::Shape([width, experts, 1, 1]);
            newer.add_tensor(&format!("{}.{suffix}", tensor.name), f32, shape).unwrap();
            data.extend((0..width * experts).flat_map(|_| 2f32.to_le_bytes()));
            data.resize(data.len().next_multiple_of(32), 0);
        }
    }
    let newer = [newer.to_bytes(), data].concat();
    let (file, out) = (dir.path().join("file"), dir.path().join("out.gguf"));
    let args = |option: &'static str| -> Vec<PathBuf> {
        let words = ["quantize", "--type", "Q4_0", "--allow-requantize", option].map(PathBuf::from);
        words.into_iter().chain([file.clone(), model.clone(), out.clone()]).collect()
    };
    let (imatrix, recipe) = (args("--imatrix"), args("--recipe"));
    let [imatrix, recipe] =
        [&imatrix, &recipe].map(|args| args.iter().map(|arg| arg.as_os_str()).collect::<Vec<_>>());
    each(&file, thorough(8, 300), |seed| mutated::gguf(&newer, seed), &imatrix, None);
    each(&file, thorough(8, 300), |seed| mutated::bytes(&legacy, seed), &imatrix, None);
    let rules = b"# types\nblk\\.0\\.ffn=q8_0\nattn=q5_0\n";
    each(&file, thorough(6, 150), |seed| mutated::bytes(rules, seed), &recipe, None);
}

/// What a command writes to stdout.
fn written(args: &[&OsStr]) -> String {
    let output = terrace().args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    stdout(&output).to_owned()
}

#[test]
fn plans_profiles_and_presets() {
    let dir = TempDir::new().unwrap();
    let (model, file) = (bundled(), dir.path().join("file.json"));
    let plan: Vec<&OsStr> = [OsStr::new("plan"), model.as_os_str()]
        .into_iter()
        .chain(["--ram-budget", "9MiB", "--json"].map(OsStr::new))
        .collect();
    let plan = written(&plan);
    let seeds = thorough(5, 300);
    each(&file, seeds, |seed| mutated::json(&plan, seed).into(), &run_with(&model, "--plan", &file), None);
    let skip = serde_json::json!({
        "version": 1, "model": {"name": "terrace-tiny-moe", "layers": 6, "bytes": 22_764_832},
        "similarity": [null, 0.86, 0.92, 0.92, 0.91, 0.91], "threshold": 0.9, "skip": [2, 3],
        "without": {"perplexity": 16.8, "error": 5.1, "chunks": 1, "context": 128},
        "with": {"perplexity": 17.8, "error": 5.1, "chunks": 1, "context": 128},
    });
    let lossy = serde_json::json!({
        "version": 1, "model": {"name": "terrace-tiny-moe", "layers": 6, "bytes": 22_764_832},
        "settings": "prior=0.1,keep=1,drop=0.5",
        "cost": {
            "kld": 0.016, "kld_error": 0.003, "perplexity": [16.69, 16.54], "same_top": 0.95,
            "read_per_token": [1_245_600.0, 774_432.0], "substituted": 0.12, "dropped": 0.04, "low": 0.0,
            "budget": 9_437_184, "tokens": 128, "scored": 63,
        },
    });
    let (skip, lossy) = (skip.to_string(), lossy.to_string());
    for (option, text) in [("--layer-skip", &skip), ("--lossy", &lossy)] {
        let mut args = run_with(&model, option, &file);
        args.extend(["--ram-budget", "9MiB"].map(OsStr::new));
        each(&file, seeds, |seed| mutated::json(text, seed).into(), &args, None);
    }

    // The machine's profile, which every run reads, and a preset of this model.
    let home = dir.path().join("home");
    let folder = home.join(".config/terrace");
    fs::create_dir_all(folder.join("presets")).unwrap();
    let profile = folder.join("profile.json");
    let own = terrace();
    let kept = own.get_envs().find(|(name, _)| *name == "HOME").and_then(|(_, home)| home).unwrap();
    let good = fs::read_to_string(Path::new(kept).join(".config/terrace/profile.json")).unwrap();
    let plain = [OsStr::new("plan"), model.as_os_str()];
    let streamed: Vec<&OsStr> = [OsStr::new("run"), model.as_os_str()]
        .into_iter()
        .chain(["-p", "hi", "-n", "2", "--ram-budget", "9MiB"].map(OsStr::new))
        .collect();
    each(&profile, seeds, |seed| mutated::json(&good, seed).into(), &plain, Some(&home));
    each(&profile, seeds, |seed| mutated::json(&good, seed + 1000).into(), &streamed, Some(&home));
    fs::write(&profile, &good).unwrap();
    let header = terrace_ggml::gguf::read(&model).unwrap();
    let identity = terrace_store::identity::file_identity(&header).unwrap();
    let preset = serde_json::json!({
        "format": "terrace-preset", "version": 1, "model": identity,
        "presets": [{
            "hardware": terrace_host::machine::Hardware::here(),
            "settings": {"threads": "1", "queue-depth": "4", "cache-policy": "lru"},
            "default_ms": 9.5, "best_ms": 7.5, "options": "",
        }],
    });
    let path = folder.join("presets").join(identity.file_stem()).with_added_extension("json");
    each(&path, seeds, |seed| mutated::json(&preset.to_string(), seed).into(), &streamed, Some(&home));
}
