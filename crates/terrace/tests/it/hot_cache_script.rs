//! A script as operators of the hot cache of adrianhoehne/llama.cpp have them, with curl, against
//! `terrace serve`: only where there is curl.

use crate::server::Server;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use terrace_model::ByteSize;
use terrace_model::learn::LearnFile;
use terrace_testkit::rpc::RpcServer;

/// Measures, learns, applies, and keeps the file; nothing in it is of Terrace.
const SCRIPT: &str = r#"
set -eu
server=$1 out=$2
ask() { curl --silent --show-error --fail --noproxy '*' "$@"; }
ask "$server/health" -o "$out/health.json"
ask "$server/moe-layer-perf" -X POST -H 'Content-Type: application/json' -d '{"mode":"full"}' -o "$out/mode.json"
ask "$server/completion" -H 'Content-Type: application/json' \
    -d '{"prompt":"In the beginning","n_predict":24,"temperature":0}' -o "$out/answer.json"
ask "$server/moe-layer-perf" -o "$out/learned.json"
ask "$server/moe-hot-cache" -X POST -H 'Content-Type: application/json' \
    --data-binary "@$out/learned.json" -o "$out/applied.json"
ask "$server/moe-hot-cache" -o "$out/again.json"
sed 's/^{/{"save_to_disk":true,/' "$out/learned.json" > "$out/saving.json"
ask "$server/moe-hot-cache" -X POST --data-binary "@$out/saving.json" -o "$out/saved.json"
ask "$server/moe-layer-perf" -X POST -d '{"mode":"off"}' -o "$out/off.json"
for body in '{"mode":"loud"}' '{}'; do
    ask "$server/moe-layer-perf" -X POST -d "$body" 2> "$out/error.txt" && exit 1
    grep -q 400 "$out/error.txt"
done
"#;

/// The start scripts of the original's guide: each option starts, and what is left out is said once.
#[test]
fn start_scripts_start() {
    let device = RpcServer::start(ByteSize::mib(64)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("moe-hot-cache.json");
    let model = crate::common::bundled();
    let start = |args: &[&str], variables: &[(&str, &str)]| {
        let server = Server::start_with(&model, args, |command| {
            command.env("XDG_CACHE_HOME", dir.path()).envs(variables.iter().copied())
        });
        let body = json!({"prompt": "In the beginning", "n_predict": 8, "temperature": 0});
        server.post("/completion", &body).ok();
        server
    };
    // To learn; the file exists, and is empty.
    fs::write(&file, "").unwrap();
    let name = file.to_str().unwrap();
    let learn = ["--cpu-moe", "--ctx", "256", "--moe-hot-cache", name, "--auto-learn", "--log-tg-progress"];
    let warm = ["--moe-hot-cache-warmup-prompt", "Create a hello world in HTML"];
    let server = start(&[&learn[..], &warm].concat(), &[]);
    server.signal("-INT");
    let (_, told) = server.ended();
    assert!(told.contains("--log-tg-progress (-v and GET /metrics show speeds)"), "{told}");
    let learned = LearnFile::parse(&fs::read(&file).unwrap()).unwrap();
    assert!(learned.pairs() > 0);
    // Nothing streams and no device has copies: layers are timed all the same.
    assert!(learned.layers.iter().all(|layer| layer.time("total_moe_time") > 0.0), "{learned:#?}");

    let with =
        ["--rpc", device.endpoint(), "--device", "RPC0", "--cpu-moe", "--n-gpu-layers", "99", "--ctx", "256"];
    let cache = [
        "--split-mode",
        "none",
        "--main-gpu",
        "0",
        "--moe-hot-cache",
        name,
        "--moe-hot-cache-max-mib",
        "-1",
        "--moe-hot-cache-auto-reserve-mib",
        "16",
        "--moe-hot-cache-update-rate",
        "0.25",
        "--moe-hot-cache-pp-reduce-merge",
        "on",
        "--moe-hot-cache-pp-dense-min-tokens",
        "256",
        "--moe-hot-cache-pp-min-hot-expert-ratio",
        "0.2",
        "--hot-lanes",
        "always",
    ];
    let variables =
        [("LLAMA_MOE_HOT_CACHE_MERGE_SUM_ROWS", "1"), ("LLAMA_ARG_MOE_HOT_CACHE_WEIGHTING", "time")];
    let server = start(&[&with[..], &cache].concat(), &variables);
    let full = server.get("/moe-layer-perf").ok();
    assert!(full["summary"]["hot_slot_ratio"].as_f64().unwrap() > 0.0, "{full:#}");
    assert_eq!(full["summary"]["pp_dense_layer_calls"], 0);
    let mut saving = full.clone();
    saving["save_to_disk"] = true.into();
    let before = fs::read(&file).unwrap();
    let saved = server.post("/moe-hot-cache", &saving).ok();
    assert_eq!((&saved["saved_to_disk"], saved["path"].as_str().unwrap()), (&json!(true), name));
    let backup = saved["backup_path"].as_str().unwrap();
    assert!(backup.ends_with("/moe-hot-cache.1.json"), "{backup}");
    assert_eq!(fs::read(backup).unwrap(), before);
    assert_ne!(fs::read(&file).unwrap(), before);
    server.signal("-INT");
    let (_, told) = server.ended();
    for name in [
        "--moe-hot-cache-update-rate",
        "--moe-hot-cache-pp-reduce-merge",
        "--moe-hot-cache-pp-dense-min-tokens",
        "--main-gpu",
        "LLAMA_MOE_HOT_CACHE_MERGE_SUM_ROWS has no effect",
    ] {
        assert_eq!(told.matches(name).count(), 1, "{name}: {told}");
    }

    // To measure: nothing is reported until a client asks for it.
    let quiet = [&with[..], &["--no-perf", "--moe-hot-cache", name, "--moe-hot-cache-max-mib", "2"]].concat();
    let server = start(&quiet, &[]);
    assert_eq!(server.get("/moe-layer-perf").ok()["mode"], "off");
    // The device's memory is for one at a time.
    drop(server);
    // Beside an option that asks for counts, the switch is left out.
    let out = dir.path().join("out.json");
    let both = [&with[..], &["--no-perf", "--moe-layer-perf-out", out.to_str().unwrap()]].concat();
    let server = start(&both, &[]);
    assert_eq!(server.get("/moe-layer-perf").ok()["mode"], "full");
}

#[test]
fn a_script_with_curl_works_unchanged() {
    if Command::new("curl").arg("--version").output().is_err() {
        eprintln!("skipped: no curl");
        return;
    }
    let device = RpcServer::start(ByteSize::mib(64)).unwrap();
    let [out, home, kept] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    let args = ["--ram-budget", "6MiB", "-ngl", "0", "--moe-hot-cache-max-mib", "2", "--hot-lanes", "always"];
    let more = ["--moe-hot-cache-update-rate", "0", "--warm-start", "off", "--ctx", "256"];
    let dirs = ["--learn-dir", kept.path().to_str().unwrap(), "--rpc", device.endpoint()];
    let server = Server::start(&crate::common::bundled(), args.iter().chain(&more).chain(&dirs));
    let url = server.url("");
    let script = Command::new("sh")
        .args(["-c", SCRIPT, "sh", url.trim_end_matches('/'), out.path().to_str().unwrap()])
        .env("HOME", home.path())
        .output()
        .unwrap();
    assert!(script.status.success(), "{}", String::from_utf8_lossy(&script.stderr));

    let text = |name: &str| fs::read_to_string(out.path().join(name)).unwrap();
    let read = |name: &str| -> Value { serde_json::from_str(&text(name)).unwrap() };
    let fields = |value: &Value, names: &[&str]| names.iter().all(|name| !value[name].is_null());
    let learned = read("learned.json");
    assert_eq!(
        (&learned["enabled"], &learned["mode"], &learned["schema"]),
        (&json!(true), &json!("full"), &json!("llama.cpp.moe_layer_opt_perf.v1"))
    );
    assert_eq!((&learned["n_expert"], &learned["n_expert_used"]), (&json!(32), &json!(4)));
    assert!(fields(&learned, &["updates", "overflow_resets", "summary"]), "{learned:#}");
    let layer = &learned["layers"][0];
    let names = ["layer", "calls", "hot_slots_total", "cold_slots_total", "hot_slot_ratio", "experts"];
    assert!(fields(layer, &names), "{layer:#}");
    assert!(layer["experts"][0][1].as_u64().unwrap() > 0, "{layer:#}");

    let applied = read("applied.json");
    assert_eq!((&applied["success"], &applied["active"]), (&json!(true), &json!(true)));
    assert_eq!((&applied["update_rate"], &applied["saved_to_disk"]), (&json!(1.0), &json!(false)));
    assert!(applied["exchanged"].as_u64().unwrap() > 0, "{applied}");
    assert!(fields(&applied, &["candidates", "max_exchange", "hot_experts", "layers_changed"]), "{applied}");
    let again = read("again.json");
    assert_eq!((&again["success"], &again["exchanged"]), (&json!(true), &json!(0)));

    // What was saved has the counts that were sent.
    let saved = read("saved.json");
    let file = fs::read(kept.path().join(saved["path"].as_str().unwrap())).unwrap();
    let counts = |text: &[u8]| {
        let layers = LearnFile::parse(text).unwrap().layers.into_iter();
        layers.map(|layer| layer.counts(32)).collect::<Vec<_>>()
    };
    assert_eq!(counts(&file), counts(text("learned.json").as_bytes()));
    assert_eq!(
        read("off.json"),
        json!({"enabled": false, "mode": "off", "schema": "llama.cpp.moe_layer_opt_perf.v1", "layers": []})
    );
}
