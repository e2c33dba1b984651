//! Models of the hub: downloaded, listed, run and deleted by their names.

use crate::common::{failure, json, stderr, stdout, terrace};
use crate::stand_in::{Behaviour, REPO, StandIn};
use std::process::Output;
use tempfile::TempDir;
use terrace_testkit::{Spec, WeightType};

#[test]
fn models_are_pulled_listed_and_removed() {
    let dir = TempDir::new().unwrap();
    let file = terrace_testkit::write(&Spec::default(), dir.path().join("m.gguf")).unwrap();
    let content = std::fs::read(file).unwrap();
    let files = [("m-Q4_K_M.gguf", content.clone()), ("m-Q8_0.gguf", content)];
    let hub = StandIn::new(&files, Behaviour::default());
    let cache = dir.path().join("hub");
    let run = |args: &[&str]| -> Output {
        let mut command = terrace();
        command.env("HF_ENDPOINT", &hub.endpoint).env("HF_HUB_CACHE", &cache);
        command.args(args).output().unwrap()
    };
    assert!(stdout(&run(&["list"])).contains("terrace pull"), "nothing is there yet");
    let several = run(&["run", &format!("hf:{REPO}"), "-p", "x", "-n", "1"]);
    let said = stderr(&several);
    assert!(said.contains("m-Q8_0.gguf") && said.contains("fits in memory"), "{said}");
    assert!(said.contains(&format!("hf:{REPO}:Q4_K_M")), "{said}");

    let name = format!("hf:{REPO}:Q4_K_M");
    let path = stdout(&run(&["pull", &name])).trim().to_owned();
    assert!(path.ends_with("m-Q4_K_M.gguf"), "{path}");
    let listed = json(&run(&["list", "--json"]));
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed[0]["name"], format!("hf:{REPO}:m-Q4_K_M.gguf"));
    assert!(listed[0]["decode_tok_s"].as_f64().unwrap() > 0.0, "{listed}");
    let table = run(&["ls"]);
    assert!(stdout(&table).lines().nth(1).unwrap().contains("tokens/s"), "{}", stdout(&table));

    let removed = run(&["rm", &name]);
    assert!(removed.status.success() && stderr(&removed).contains("deleted m-Q4_K_M.gguf"), "{removed:?}");
    assert!(failure(&run(&["rm", &name]), 2).contains("is not downloaded"));
}

#[test]
fn quantisations_are_compared() {
    let dir = TempDir::new().unwrap();
    let write = |name: &str, ty| {
        let spec = Spec { other_type: ty, expert_type: ty, ..Spec::default() };
        let path = terrace_testkit::write(&spec, dir.path().join(name)).unwrap();
        (name.to_owned(), std::fs::read(path).unwrap())
    };
    let files = [write("m-Q4_0.gguf", WeightType::Q4_0), write("m-F16.gguf", WeightType::F16)];
    let files: Vec<(&str, Vec<u8>)> =
        files.iter().map(|(name, content)| (name.as_str(), content.clone())).collect();
    let hub = StandIn::new(&files, Behaviour::default());
    let cache = dir.path().join("hub");
    let plan = |model: &str, more: &[&str]| {
        let mut command = terrace();
        command.env("HF_ENDPOINT", &hub.endpoint).env("HF_HUB_CACHE", &cache);
        command.args(["plan", model]).args(more).output().unwrap()
    };
    let repository = format!("hf:{REPO}");
    let report = json(&plan(&repository, &["--json"]));
    let all = report["quantisations"].as_array().unwrap();
    let types: Vec<&str> = all.iter().map(|entry| entry["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["Q4_0", "F16"], "{report}");
    assert!(all.iter().all(|entry| entry["decode_tok_s"].as_f64().unwrap() > 0.0), "{report}");
    assert_eq!(report["recommended"], format!("hf:{REPO}:m-Q4_0.gguf"), "{report}");
    assert!(!cache.exists(), "headers alone are downloaded");
    let folder = dir.path().to_str().unwrap();
    for model in [repository.as_str(), folder] {
        let output = plan(model, &[]);
        let table = stdout(&output);
        assert!(table.contains("Q4_0") && table.contains("recommended: Q4_0"), "{table}{}", stderr(&output));
        assert!(table.lines().all(|line| line.chars().count() <= 80 || line.contains(folder)), "{table}");
    }
    let refused = plan(&repository, &["--explain", "output.weight"]);
    assert!(
        failure(&refused, 2).contains("--explain is about the plan of one model"),
        "{}",
        stderr(&refused)
    );
    // Other models are no quantisations.
    terrace_testkit::write(&Spec { layers: 4, ..Spec::default() }, dir.path().join("other.gguf")).unwrap();
    assert!(failure(&plan(folder, &[]), 2).contains("has 3 models"));
}

#[test]
fn words_of_other_programs_lead_to_commands() {
    let run = |args: &[&str]| terrace().args(args).output().unwrap();
    let help = stdout(&run(&["help"])).to_owned();
    for part in ["Run:\n  run ", "\n\nLook:\n", "\n\nMeasure:\n", "\n\nQuantise:\n", "\n\nOperate:\n"] {
        assert!(help.contains(part), "{part}: {help}");
    }
    assert_eq!(stdout(&run(&["help", "run"])), stdout(&run(&["run", "--help"])));
    assert_eq!(stdout(&run(&["version"])), stdout(&run(&["--version"])));
    assert!(stdout(&run(&["chat", "-h"])).contains("--chat"));
    let ps = run(&["ps"]);
    assert!(
        failure(&ps, 2).contains("loaded by servers") && stderr(&ps).contains("terrace top"),
        "{}",
        stderr(&ps)
    );
    for (given, meant) in
        [("--ram", "--ram-budget"), ("--ctxt", "--ctx"), ("--no-displayprompt", "--no-display-prompt")]
    {
        let said = stderr(&run(&["run", "x.gguf", given, "5"]));
        assert!(said.contains(&format!("`{meant}")), "{given}: {said}");
    }
    let said = stderr(&run(&["run", "x.gguf", "--ram-budget", "12"]));
    assert!(said.contains("did you mean 12GiB?"), "{said}");
    let said = stderr(&run(&["run", "Qwen/Qwen3-30B-A3B-GGUF", "-p", "x"]));
    assert!(said.contains("use hf:Qwen/Qwen3-30B-A3B-GGUF"), "{said}");
}
