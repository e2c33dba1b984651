//! Libraries of backends beside the program and in places that are named. These are imitations
//! without devices; what computes on a real one is in `vulkan`.

use crate::common::{bundled, error_line, failure, stderr, stdout, terrace};
use serde_json::Value;
use std::path::Path;
use std::process::Output;
use tempfile::TempDir;
use terrace_ggml::testing::library::Library;

fn generate(places: &Path) -> Output {
    let bundled = bundled();
    let args = ["run", bundled.to_str().unwrap(), "-p", "In", "-n", "2", "--temp", "0"];
    terrace().env("TERRACE_BACKENDS", places).args(args).output().unwrap()
}

fn warnings(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{}", stderr(output));
    let text = stderr(output);
    text.lines().filter(|line| line.starts_with("warning: ")).map(str::to_owned).collect()
}

#[test]
fn libraries_in_a_folder_are_warned_of_and_named_ones_are_errors() {
    let folder = TempDir::new().unwrap();
    let missing = Library { missing: true, ..Library::default() }.write(folder.path(), "libggml-cuda.so");
    let said = warnings(&generate(folder.path()));
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("libggml-cuda.so cannot be loaded: libimitation-driver.so.7"), "{said:?}");
    let output = generate(&missing);
    assert!(failure(&output, 1).contains("libimitation-driver.so.7"), "{output:?}");
    assert!(stderr(&output).contains("hint: install what the reason names"), "{}", stderr(&output));

    let none = folder.path().join("none");
    let error = failure(&generate(&none), 1);
    assert!(error.starts_with(&format!("TERRACE_BACKENDS: {}: ", none.display())), "{error}");
    // ggml's own variable names one file.
    let mut command = terrace();
    command.env("GGML_BACKEND_PATH", &none).args(["machine", "--json"]);
    assert!(error_line(&stderr(&command.output().unwrap())).contains("none cannot be loaded"));
    // What needs no device does not look.
    let output = terrace().env("TERRACE_BACKENDS", &none).args(["completions", "bash"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn what_fits_is_loaded_in_silence() {
    let folder = TempDir::new().unwrap();
    Library::default().write(folder.path(), "libggml-cuda.so");
    // A machine without such a device.
    let without = TempDir::new().unwrap();
    Library { driver: false, ..Library::default() }.write(without.path(), "libggml-hip.so");
    for folder in [folder.path(), without.path()] {
        assert_eq!(warnings(&generate(folder)), Vec::<String>::new());
    }
}

#[test]
fn doctor_says_what_became_of_each() {
    let (good, bad) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    Library::default().write(good.path(), "libggml-cuda.so");
    let old = Library { version: Some("0.25.3".into()), refused: true, ..Library::default() };
    let old = old.write(bad.path(), "libggml-vulkan.so");
    let places = std::env::join_paths([good.path(), &old]).unwrap();
    let mut command = terrace();
    // Tests switch Vulkan off, and with it its library.
    command.env_remove("GGML_DISABLE_VULKAN").env("TERRACE_BACKENDS", places).args(["doctor", "--json"]);
    let output = command.output().unwrap();
    let report: Value = serde_json::from_str(stdout(&output)).unwrap();
    let findings: Vec<&Value> =
        report["findings"].as_array().unwrap().iter().filter(|f| f["check"] == "backends").collect();
    assert_eq!(findings.len(), 2, "{findings:#?}");
    let loaded = findings[0]["text"].as_str().unwrap();
    assert!(findings[0]["level"] == "ok" && loaded.contains("is loaded: Imitation of ggml"), "{loaded}");
    let refused = findings[1]["text"].as_str().unwrap();
    assert_eq!(findings[1]["level"], "warn");
    assert!(refused.contains("built for ggml 0.25.3") && refused.contains("needs ggml 0."), "{refused}");
}
