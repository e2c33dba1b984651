//! `terrace iobench`: its table, its JSON, what it saves and what it refuses.

use crate::common;
use crate::common::{failure, json, stderr, stdout, terrace};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Output;
use tempfile::TempDir;

fn iobench(cache: &TempDir, args: &[&str]) -> Output {
    terrace().env("XDG_CACHE_HOME", cache.path()).arg("iobench").args(args).output().unwrap()
}

fn file(dir: &TempDir, len: usize) -> String {
    let path = dir.path().join("model.gguf");
    fs::write(&path, vec![1; len]).unwrap();
    fs::File::open(&path).unwrap().sync_all().unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn json_has_the_promised_fields_and_a_short_file_leaves_nothing_behind() {
    let dir = TempDir::new().unwrap();
    let path = file(&dir, 2 << 20);
    let output = iobench(&dir, &[&path, "--json", "--seconds", "1"]);
    let report = json(&output);
    assert_eq!(stdout(&output).lines().count(), 1);
    assert_eq!((&report["version"], &report["path"]), (&Value::from(1), &Value::from(path)));
    assert_eq!((&report["temporary"], &report["bytes"]), (&Value::from(false), &Value::from(2 << 20)));
    for key in ["major", "minor", "file_system", "source"] {
        assert!(!report["device"][key].is_null(), "{key}");
    }
    assert_eq!(report["rounds"], 1, "one second is too short for more");
    let rows = report["rows"].as_array().unwrap();
    assert!(rows.len() > 20);
    for row in rows {
        for key in ["request_size", "queue_depth", "adjacent", "bytes", "requests", "p50_us", "p99_us"] {
            assert!(row[key].is_u64(), "{key}: {row}");
        }
        for (key, known) in [
            ("question", &["request_size", "depth", "buffered", "compute", "coalescing"][..]),
            ("engine", &["uring", "pread"]),
            ("pattern", &["sequential", "scattered"]),
            ("cache", &["bypassed", "cold", "warm", "unknown"]),
        ] {
            assert!(known.contains(&row[key].as_str().unwrap()), "{key}: {row}");
        }
        assert!(row["gbps_min"].as_f64().unwrap() > 0.0 && row["gbps"].is_f64() && row["gbps_max"].is_f64());
        assert!(row["seconds"].as_f64().unwrap() > 0.0);
        assert_eq!(row["compute_gbps"].is_null(), row["compute"] == false, "{row}");
    }
    for key in ["engine", "direct", "request_size", "queue_depth", "gbps", "coalesce_below", "because"] {
        assert!(report["recommended"].as_object().unwrap().contains_key(key), "{key}");
    }
    assert!(report["kept_in"].is_null());
    assert!(report["not_kept_because"].as_str().unwrap().contains("2 MiB"));
    assert!(
        stderr(&output).contains("warning: the recommended settings are not saved"),
        "{}",
        stderr(&output)
    );
    assert!(!dir.path().join("terrace").exists());
}

#[test]
fn a_directory_is_measured_and_what_was_found_is_kept_for_its_device() {
    let (dir, cache) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let path = dir.path().to_str().unwrap();
    let output = iobench(&cache, &[path, "--size", "64MiB", "--seconds", "6"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    for part in ["a temporary file in ", "(64 MiB)", "request size", "p99 ms", "recommended", "because: "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let kept = cache.path().join("terrace/io.json");
    assert!(text.contains(&format!("saved for this device in {}", kept.display())), "{text}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "the temporary file is gone");
    let settings: Value = serde_json::from_slice(&fs::read(&kept).unwrap()).unwrap();
    let depth = settings["devices"][0]["queue_depth"].as_u64().unwrap();
    assert!(text.contains(&format!("requests in flight  {depth}\n")), "{text}");
    assert_eq!(settings["devices"][0]["by"], "iobench");

    // From now on models on this device are read with these settings.
    let model = common::tiny(&dir);
    let args = ["run", model.to_str().unwrap(), "-p", "a", "-n", "1", "--stream", "experts", "--json"];
    let output = terrace().env("XDG_CACHE_HOME", cache.path()).args(args).arg("-vv").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains(&format!("{depth} requests of ")), "{}", stderr(&output));
    assert!(stderr(&output).contains("as iobench found best on this device"), "{}", stderr(&output));

    fs::write(&kept, "not ours").unwrap();
    let output = terrace().env("XDG_CACHE_HOME", cache.path()).args(args).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("io.json"), "a warning names the file: {}", stderr(&output));
    assert_eq!(fs::read(&kept).unwrap(), b"not ours");
}

#[test]
fn several_paths_have_an_object_each_and_the_first_failure_ends() {
    let dirs = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let paths = dirs.each_ref().map(|dir| file(dir, 2 << 20));
    let output = iobench(&dirs[0], &[&paths[0], &paths[1], "--json", "--seconds", "1"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let reports: Vec<Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let measured: Vec<&str> = reports.iter().map(|report| report["path"].as_str().unwrap()).collect();
    assert_eq!(measured, paths, "in the order given");

    let missing = dirs[0].path().join("missing");
    let error = failure(&iobench(&dirs[0], &[missing.to_str().unwrap(), &paths[0]]), 1);
    assert!(error.contains("missing"), "{error}");
}

#[test]
fn refusals_name_the_file_and_the_numbers() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let error = failure(&iobench(&dir, &[&at("missing")]), 1);
    assert!(error.contains("missing") && error.contains("No such file"), "{error}");
    fs::write(at("empty"), "").unwrap();
    let error = failure(&iobench(&dir, &[&at("empty")]), 1);
    assert!(error.contains("empty has 0 bytes"), "{error}");
    let error = failure(&iobench(&dir, &["/dev/null"]), 1);
    assert!(error.contains("not a regular file"), "{error}");

    let output = iobench(&dir, &[dir.path().to_str().unwrap(), "--size", "900000TiB"]);
    let error = failure(&output, 1);
    assert!(
        error.contains("900000 TiB") && error.contains("are needed") && error.contains("are free"),
        "{error}"
    );
    assert!(stderr(&output).contains("--size"), "{}", stderr(&output));
    let error = failure(&iobench(&dir, &[&at("missing"), "--seconds", "0"]), 2);
    assert!(error.contains("--seconds"), "{error}");
    assert!(!Path::new(&at("terrace")).exists());
}
