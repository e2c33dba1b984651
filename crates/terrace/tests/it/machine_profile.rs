//! `terrace machine` and `terrace doctor` with the real binary: what is measured, saved, used and
//! refused.

use crate::common::{bundled, command, failure, json, stderr, stdout, terrace};
use crate::plan::is_probed;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;
use terrace_model::ByteSize;
use terrace_testkit::rpc::RpcServer;

/// A command whose user directories are `home`.
fn at(home: &Path) -> Command {
    let mut command = terrace();
    command.env("XDG_CONFIG_HOME", home.join("config")).env("XDG_CACHE_HOME", home.join("cache"));
    command
}

fn profile(home: &Path, more: &[&str]) -> Output {
    at(home).args(["machine", "--seconds", "0.2"]).args(more).output().unwrap()
}

/// The source of a rate of the bundled model's plan.
fn source(plan: &Value, what: &str) -> String {
    let rates = plan["rates"].as_array().unwrap();
    rates.iter().find(|rate| rate["what"] == what).unwrap()["source"].as_str().unwrap().to_owned()
}

fn plan(home: &Path) -> Output {
    at(home).args(["plan", bundled().to_str().unwrap(), "--json"]).output().unwrap()
}

#[test]
fn what_is_measured_is_kept_and_used_until_it_is_stale() {
    let home = TempDir::new().unwrap();
    let home = home.path();
    let first = profile(home, &["--no-storage", "--types", "q4_K", "--json"]);
    let report = json(&first);
    let file = home.join("config/terrace/profile.json");
    assert_eq!(report, serde_json::from_str::<Value>(&fs::read_to_string(&file).unwrap()).unwrap());
    assert!(report["cpu"]["matmul"]["q4_K"]["decode_bytes_per_s"].as_f64().unwrap() > 0.0);
    assert!(report["cpu"]["layer_overhead_s"].as_f64().unwrap() > 0.0);
    let cores = report["cpu"]["cores"].as_u64().unwrap();
    assert_eq!(report["memory"]["bandwidth"].as_array().unwrap().last().unwrap()["threads"], cores);

    let planned = json(&plan(home));
    for what in ["memory", "q4_K decode", "q4_K prefill", "layer overhead"] {
        assert!(source(&planned, what).starts_with("measured 20"), "{what}");
    }
    // Another type is added to the description; without options it is shown.
    let more = json(&profile(home, &["--no-storage", "--types", "f16", "--json"]));
    assert!(more["cpu"]["matmul"]["f16"].is_object() && more["cpu"]["matmul"]["q4_K"].is_object());
    let shown = profile(home, &[]);
    assert!(stdout(&shown).contains("measured earlier, from") && stdout(&shown).contains("q4_K"));
    // The saved file is also a description for `--machine`.
    let given = at(home).arg("plan").arg(bundled()).arg("--machine").arg(&file).output().unwrap();
    assert!(given.status.success(), "{}", stderr(&given));

    let good = fs::read_to_string(&file).unwrap();
    let stale = [
        (
            good.replace("\"hardware\": {\n    \"cpu\": \"", "\"hardware\": {\n    \"cpu\": \"Other "),
            "another processor",
        ),
        (good.replace("\"version\": 1", "\"version\": 7"), "version 7"),
        (good[..good.len() / 2].to_owned(), "EOF"),
    ];
    for (text, part) in stale {
        assert_ne!(text, good);
        fs::write(&file, text).unwrap();
        let output = plan(home);
        let report = json(&output);
        assert!(is_probed(&source(&report, "q4_K decode")), "{:#}", report["rates"]);
        let warning = stderr(&output);
        assert_eq!(warning.lines().count(), 1, "{warning}");
        assert!(warning.contains(part) && warning.contains("--refresh"), "{warning}");
    }
    let anew = profile(home, &["--no-storage", "--types", "q8_0", "--json"]);
    assert!(stderr(&anew).contains("overwritten"), "{}", stderr(&anew));
    assert!(json(&anew)["cpu"]["matmul"]["q4_K"].is_null());
}

#[test]
fn storage_is_measured_where_it_is_asked_for() {
    let home = TempDir::new().unwrap();
    let out = home.path().join("machine.json");
    // Beside the test's binary, which is on a disk; /tmp may be in memory.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let args = [
        "--types",
        "q4_0",
        "--size",
        "8MiB",
        "--out",
        out.to_str().unwrap(),
        "--json",
        dir.path().to_str().unwrap(),
    ];
    let report = json(&profile(home.path(), &args));
    let storage = &report["storage"][0];
    assert_eq!(storage["path"].as_str(), dir.path().to_str());
    assert!(storage["sequential_bytes_per_s"].as_f64().unwrap() > 0.0);
    let reads = storage["reads"].as_array().unwrap();
    for random in [true, false] {
        assert!(reads.iter().any(|read| read["random"] == random), "{reads:?}");
    }
    assert!(!home.path().join("config").exists() && fs::read_dir(dir.path()).unwrap().count() == 0);
}

#[test]
fn servers_are_devices_of_the_machine() {
    let home = TempDir::new().unwrap();
    let server = RpcServer::start(ByteSize::mib(96)).unwrap();
    let args = ["--no-storage", "--types", "q4_0", "--rpc", server.endpoint(), "--json"];
    let report = json(&profile(home.path(), &args));
    let device = &report["devices"][0];
    assert_eq!(device["address"], server.endpoint());
    assert_eq!(device["memory_total"].as_u64(), Some(96 << 20));
    for rate in ["h2d_bytes_per_s", "d2h_bytes_per_s", "latency_s", "layer_overhead_s"] {
        assert!(device[rate].as_f64().unwrap() > 0.0, "{rate}");
    }
    assert!(device["matmul"]["q4_0"]["prefill_flops"].as_f64().unwrap() > 0.0);
    assert!(report["sources"][format!("devices.{}", device["name"].as_str().unwrap())].is_string());
}

#[test]
fn wrong_wishes_are_one_line() {
    let home = TempDir::new().unwrap();
    let closed = terrace_testkit::rpc::endpoint(terrace_testkit::rpc::free_port().unwrap());
    for (args, code, part) in [
        (vec!["--types", "q4_9"], 2, "q4_K"),
        (vec!["--seconds", "9999"], 2, "3600"),
        (vec!["--rpc", "nowhere"], 1, "HOST:PORT"),
        (vec!["--rpc", &closed], 1, &closed),
        (vec!["/nonexistent/dir"], 1, "/nonexistent/dir"),
        (vec!["--no-storage", "--types", "q4_0", "--out", "/proc/p.json"], 1, "/proc/p.json"),
    ] {
        let output = at(home.path()).arg("machine").args(&args).output().unwrap();
        let error = failure(&output, code);
        assert!(error.contains(part), "{args:?}: {error}");
    }
}

#[test]
fn the_doctor_examines_this_machine() {
    let home = TempDir::new().unwrap();
    let doctor = |more: &[&str]| at(home.path()).arg("doctor").args(more).output().unwrap();
    let output = doctor(&[bundled().to_str().unwrap()]);
    assert!(output.status.success(), "{}", stdout(&output));
    // Lines that continue others are indented.
    let lines: Vec<&str> = stdout(&output).lines().filter(|line| !line.starts_with(' ')).collect();
    for check in [
        "build",
        "cpu features",
        "memory",
        "cgroup",
        "swap",
        "huge pages",
        "pressure",
        "devices",
        "io_uring",
        "memlock",
        "open files",
        "storage",
        "direct I/O",
        "profile",
        "I/O settings",
    ] {
        let line = lines.iter().find(|line| line[5..].starts_with(check));
        let line = line.unwrap_or_else(|| panic!("no {check} in {lines:#?}"));
        assert!(line.starts_with("ok ") || line.starts_with("warn "), "{line}");
    }
    assert!(stdout(&output).contains("never measured: run terrace machine"));
    let report = json(&doctor(&["--json", home.path().to_str().unwrap()]));
    assert_eq!(report["findings"].as_array().unwrap().len(), lines.len());
    assert!(failure(&doctor(&["/nonexistent/m.gguf"]), 1).contains("/nonexistent/m.gguf"));
    let few = command(Path::new("/bin/sh"))
        .args(["-c", "ulimit -n 20; exec \"$0\" doctor", env!("CARGO_BIN_EXE_terrace")])
        .output()
        .unwrap();
    assert_eq!(few.status.code(), Some(1), "{}", stderr(&few));
    assert!(stdout(&few).contains("bad  open files"), "{}", stdout(&few));
}

#[test]
fn what_there_is_no_time_for_is_named() {
    let home = TempDir::new().unwrap();
    let begun = std::time::Instant::now();
    let output = profile(home.path(), &["--no-storage", "--json"]);
    let report = json(&output);
    assert!(report["cpu"]["matmul"]["q4_K"].is_object(), "{report}");
    let said = stderr(&output);
    assert!(said.contains("not measured: the CPU, ") && said.contains("no time (--seconds)"), "{said}");
    // Sixteen types took minutes on a busy machine.
    assert!(begun.elapsed() < std::time::Duration::from_secs(40), "{:?}", begun.elapsed());
}
