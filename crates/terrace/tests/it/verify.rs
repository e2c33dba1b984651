//! `--verify`: bytes that a disk silently changes are an error.

use crate::common::{bundled, error_line, failure, json, stderr, terrace};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;
use terrace_model::ByteSize;
use terrace_testkit::rpc::RpcServer;

const TENSOR: &str = "blk.0.ffn_up_exps.weight";

/// A verified run, whose cache directory is `cache`.
fn command(cache: &Path, more: &[&str]) -> Command {
    let mut command = terrace();
    command.env("XDG_CACHE_HOME", cache);
    command.args(["run", bundled().to_str().unwrap(), "-p", "In the beginning", "-n", "8", "--temp", "0"]);
    command.args(["--json", "--verify"]).args(more);
    command
}

fn streamed(cache: &Path, more: &[&str]) -> Output {
    command(cache, &[&["--stream", "experts", "--ram-budget", "8MiB"], more].concat()).output().unwrap()
}

/// The only file of checksums.
fn kept(cache: &Path) -> PathBuf {
    let files = fs::read_dir(cache.join("terrace/checksums")).unwrap();
    let [file] = &files.map(|file| file.unwrap().path()).collect::<Vec<_>>()[..] else { panic!("one file") };
    file.clone()
}

/// A fault at the first byte of a tensor.
fn flip(tensor: &str) -> String {
    let offset = terrace_ggml::gguf::read(&bundled()).unwrap().tensor(tensor).unwrap().extent.offset;
    format!("flip@bytes:{offset}..{}", offset + 1)
}

fn counted(report: &Value) -> [u64; 3] {
    ["verified", "mismatches", "healed"].map(|counter| report["store"][counter].as_u64().unwrap())
}

#[test]
fn checksums_of_the_first_run_are_compared_in_later_ones() {
    let cache = TempDir::new().unwrap();
    let first = streamed(cache.path(), &[]);
    let golden = json(&first)["tokens"].clone();
    let [verified, mismatches, healed] = counted(&json(&first));
    assert!(verified > 0 && (mismatches, healed) == (0, 0), "{}", stderr(&first));
    let made = fs::read(kept(cache.path())).unwrap();

    let bad = flip(TENSOR);
    let error = failure(&streamed(cache.path(), &["--inject-fault", &bad]), 1);
    assert!(error.contains(TENSOR) && error.contains("tiny-moe-Q4_K.gguf"), "{error}");
    assert!(error.contains("does not match its checksum"), "{error}");
    // Resident weights, too.
    let error = failure(&streamed(cache.path(), &["--inject-fault", &flip("output.weight")]), 1);
    assert!(error.contains("output.weight") && error.contains("does not match its checksum"), "{error}");
    // Without the option nobody notices.
    let unverified = ["--inject-fault", &bad];
    let mut plain = terrace();
    plain.env("XDG_CACHE_HOME", cache.path());
    plain.args(["run", bundled().to_str().unwrap(), "-p", "In", "-n", "1", "--stream", "experts"]);
    assert!(plain.args(["--ram-budget", "8MiB"]).args(unverified).output().unwrap().status.success());

    // A passing fault costs another read. Without guesses, everything that is read is needed.
    let passing = ["--lookahead", "off", "--inject-fault", "flip@100,flip@150,flip@200"];
    let output = streamed(cache.path(), &passing);
    assert_eq!(json(&output)["tokens"], golden);
    let [_, mismatches, healed] = counted(&json(&output));
    assert_eq!(healed, mismatches);
    // Those of the load are not in the report.
    assert!(stderr(&output).contains("and did when read again"), "{}", stderr(&output));
    assert_eq!(fs::read(kept(cache.path())).unwrap(), made, "kept as they were");
}

#[test]
fn what_was_read_wrongly_at_first_is_an_error_later() {
    let cache = TempDir::new().unwrap();
    // Wrong whenever it is read, in this run only.
    json(&streamed(cache.path(), &["--inject-fault", &flip(TENSOR)]));
    let error = failure(&streamed(cache.path(), &[]), 1);
    assert!(error.contains(TENSOR), "{error}");
}

#[test]
fn a_damaged_file_of_checksums_is_made_again() {
    let cache = TempDir::new().unwrap();
    let golden = json(&streamed(cache.path(), &[]))["tokens"].clone();
    let file = kept(cache.path());
    let good = fs::read(&file).unwrap();
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;
    for bytes in [&bad[..], &good[..good.len() / 2], b"", &[0xff; 5000]] {
        fs::write(&file, bytes).unwrap();
        let output = streamed(cache.path(), &[]);
        let text = stderr(&output);
        assert!(text.contains("are made again") && text.contains(file.to_str().unwrap()), "{text}");
        assert_eq!(json(&output)["tokens"], golden);
        assert_eq!(fs::read(&file).unwrap(), good);
    }
    // A folder in its place: the run works without.
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let output = streamed(cache.path(), &[]);
    assert!(stderr(&output).contains("cannot keep checksums"), "{}", stderr(&output));
    assert_eq!(json(&output)["tokens"], golden);
}

#[test]
fn a_model_that_fits_is_read_and_verified_instead_of_mapped() {
    let cache = TempDir::new().unwrap();
    let report = json(&command(cache.path(), &[]).output().unwrap());
    assert_eq!(report["mode"], "full-resident");
    let bad = command(cache.path(), &["--inject-fault", &flip(TENSOR)]).output().unwrap();
    let text = stderr(&bad);
    assert!(error_line(&text).contains(TENSOR), "{text}");
    assert!(text.contains("hint: "), "{text}");
    let refused = command(cache.path(), &["--mmap"]).output().unwrap();
    let text = stderr(&refused);
    assert!(!refused.status.success() && text.contains("--mmap or --verify"), "{text}");
    let refused = command(cache.path(), &["--repack"]).output().unwrap();
    assert!(!refused.status.success() && stderr(&refused).contains("--verify"), "{}", stderr(&refused));
}

#[test]
fn what_devices_hold_is_said_not_to_be_verified() {
    let server = RpcServer::start(ByteSize::mib(256)).unwrap();
    let cache = TempDir::new().unwrap();
    let output = command(cache.path(), &["--rpc", server.endpoint(), "-ngl", "1"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("go to devices"), "{}", stderr(&output));
    assert!(!stderr(&streamed(cache.path(), &[])).contains("go to devices"));
}
