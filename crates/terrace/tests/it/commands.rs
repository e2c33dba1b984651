//! What the commands do if nothing is wrong, and how their settings are combined.

use crate::common::{bundled, failure, json, run, stderr, stdout, terrace};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use tempfile::TempDir;
use terrace_testkit::{Arch, Spec};

const PROMPT: &str = "In the beginning";

fn generate(more: &[&str]) -> Output {
    let model = bundled();
    let args = ["run", model.to_str().unwrap(), "-p", PROMPT, "-n", "16", "--temp", "0"];
    run(args.iter().chain(more))
}

#[test]
fn streamed_stock_and_resident_text_are_the_same() {
    let text = generate(&["--stream", "none"]);
    assert!(text.status.success(), "{}", stderr(&text));
    assert!(stdout(&text).len() > 16 && stdout(&text).ends_with('\n'));
    assert_eq!(stdout(&generate(&["--stream", "experts", "--ram-budget", "4MiB"])), stdout(&text));
    assert_eq!(
        stdout(&generate(&["--stream", "all", "--ram-budget", "16MiB", "--io", "pread"])),
        stdout(&text)
    );
    assert_eq!(stdout(&generate(&["--manage", "mapped"])), stdout(&text));
    assert_eq!(stdout(&generate(&["--stock"])), stdout(&text));
}

#[test]
fn text_of_fast_kernels_is_the_same_wherever_weights_are() {
    let model = bundled();
    let prompt = "In the beginning God created the heaven and the earth. ".repeat(30);
    let text = |more: &[&str]| {
        let args =
            ["run", model.to_str().unwrap(), "-p", &prompt, "-n", "24", "--temp", "0", "--kernels", "fast"];
        let output = run(args.iter().chain(more));
        assert!(output.status.success(), "{more:?}: {}", stderr(&output));
        stdout(&output).to_owned()
    };
    let mapped = text(&["--stream", "mapped", "-t", "1"]);
    for more in [
        &["--stream", "mapped", "-t", "2"][..],
        &["--stream", "none", "-t", "2"],
        &["--stream", "experts", "--ram-budget", "4MiB", "-t", "2"],
        &["--stream", "all", "--ram-budget", "16MiB", "-t", "1"],
        &["--stream", "none", "--draft", "ngram", "-t", "2"],
    ] {
        assert_eq!(text(more), mapped, "{more:?}");
    }
    let quantised = text(&["--kv-type", "q8_0", "-t", "1"]);
    assert_eq!(
        text(&["--kv-type", "q8_0", "--stream", "experts", "--ram-budget", "4MiB", "-t", "2"]),
        quantised
    );
}

#[test]
fn what_fits_is_left_to_the_page_cache_unless_reading_is_asked_for() {
    let size = fs::metadata(bundled()).unwrap().len().to_string();
    let mapped = |more: &[&str]| {
        let report = json(&generate(&[more, &["--available-memory", "8GiB", "--json"]].concat()));
        assert_eq!(report["plan"]["mode"], report["mode"]);
        (report["mode"].as_str().unwrap().to_owned(), report["plan"]["io"].is_null())
    };
    for more in [&[][..], &["--manage", "mapped"], &["--ram-budget", &size]] {
        assert_eq!(mapped(more), ("mapped".into(), true), "{more:?}");
    }
    for more in [&["--stream", "none"][..], &["--io", "pread"], &["--direct", "off"]] {
        assert_eq!(mapped(more), ("full-resident".into(), false), "{more:?}");
    }
    assert_eq!(mapped(&["--ram-budget", "16MiB"]), ("expert-streaming".into(), false));
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Models that mix several residual streams have their experts guessed, too, and read ahead once guesses were often right.
#[test]
fn experts_of_mixed_streams_are_read_ahead() {
    let dir = tempfile::tempdir().unwrap();
    let model = terrace_testkit::write(&Spec::new(Arch::Qwen4Exp), dir.path().join("model.gguf")).unwrap();
    let args = ["run", model.to_str().unwrap(), "-p", PROMPT, "-n", "100", "--temp", "0", "--json"];
    let streamed = |more: &[&str]| json(&run(args.iter().chain(&["--stream", "experts"]).chain(more)));
    let report = streamed(&["--ram-budget", "8MiB"]);
    let of = |report: &Value, part: &str, key: &str| report[part][key].as_u64().unwrap();
    let (chosen, guessed) = (of(&report, "foretold", "chosen"), of(&report, "foretold", "guessed"));
    assert!(chosen > 600 && guessed * 10 > chosen * 6, "{report}");
    assert!(of(&report["store"], "ahead", "speculated") > 0, "{report}");
    assert_eq!(report["tokens"], json(&run(args.iter().chain(&["--stock"])))["tokens"]);
    // Too few to be judged by.
    let short = streamed(&["--ram-budget", "8MiB", "-n", "20"]);
    assert_eq!(of(&short["store"], "ahead", "speculated"), 0, "{short}");
    assert!(of(&short, "foretold", "guessed") > 0, "{short}");
}

#[test]
fn run_json_is_one_object_with_the_promised_fields() {
    let output = generate(&["--stream", "experts", "--ram-budget", "4MiB", "--json"]);
    let report = json(&output);
    assert_eq!(stdout(&output).lines().count(), 1);
    for key in ["text", "tokens", "prompt_tokens", "mode", "plan", "timings", "store", "peak_rss_bytes"] {
        assert!(keys(&report).contains(&key), "{key}");
    }
    assert_eq!(report["tokens"].as_array().unwrap().len(), 16);
    assert!(report["tokens"].as_array().unwrap().iter().all(Value::is_i64));
    assert!(report["prompt_tokens"].as_u64().unwrap() > 0);
    assert_eq!(report["stop"], "length");
    assert_eq!(report["text"], stdout(&generate(&[])).trim_end_matches('\n'));
    for key in ["load_ms", "prompt_tps", "decode_tps", "ttft_ms"] {
        assert!(report["timings"][key].as_f64().unwrap() > 0.0, "{key}");
    }
    let store = &report["store"];
    for key in ["bytes_read", "requests", "hits", "misses", "hit_rate", "read_gbps", "stall_ms"] {
        assert!(store[key].is_number(), "{key}");
    }
    let layers = report["layers"].as_array().unwrap();
    for key in ["bytes_read", "requests", "hits", "misses", "joined"] {
        let sum: u64 = layers.iter().map(|layer| layer[key].as_u64().unwrap()).sum();
        let total = store[key].as_u64().unwrap();
        // Resident weights are read outside of the layers' blocks.
        let besides = matches!(key, "bytes_read" | "requests");
        assert!(if besides { sum <= total && sum > 0 } else { sum == total }, "{key}: {sum} of {total}");
    }
    assert!(layers.len() > 2 && layers[1]["layer"] == 1, "{layers:?}");
    let ahead = |key: &str| store["ahead"][key].as_u64().unwrap();
    assert!(ahead("speculated") > 0 && ahead("used") + ahead("wasted") <= ahead("speculated"), "{store}");
    let foretold = |key: &str| report["foretold"][key].as_u64().unwrap();
    assert!(foretold("chosen") >= foretold("guessed") && foretold("guessed") > 0, "{report}");
    assert!(store["bytes_read"].as_u64().unwrap() > 4 << 20, "more than the budget was read: it streamed");
    assert!(report["peak_rss_bytes"].as_u64().unwrap() > 4 << 20);
    assert!(report["plan"].is_object());

    let stock = json(&generate(&["--stock", "--json"]));
    assert_eq!((&stock["mode"], &stock["store"]), (&Value::from("stock"), &Value::Null));
    assert_eq!(stock["tokens"], report["tokens"]);

    let reference = json(&generate(&["--stock", "--stock-repack", "on", "--json"]));
    let repacked = json(&generate(&["--repack", "--json"]));
    assert_eq!((&repacked["mode"], &repacked["tokens"]), (&Value::from("repacked"), &reference["tokens"]));
    let both = failure(&generate(&["--repack", "--ram-budget", "4MiB"]), 2);
    assert!(both.contains("--repack") && both.contains("--ram-budget"), "{both}");
}

/// A copy of the bundled model in which this token ends a text.
fn ended_by(token: u32, dir: &TempDir) -> PathBuf {
    const KEY: &[u8] = b"tokenizer.ggml.eos_token_id";
    const U32: [u8; 4] = 4_u32.to_le_bytes();
    let mut bytes = fs::read(bundled()).unwrap();
    let key = bytes.windows(KEY.len()).position(|window| window == KEY).unwrap() + KEY.len();
    assert_eq!(bytes[key..key + 4], U32);
    bytes[key + 4..key + 8].copy_from_slice(&token.to_le_bytes());
    let path = dir.path().join("model.gguf");
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn passes_are_counted_with_the_one_that_ends_the_text() {
    let whole = json(&generate(&["--json"]));
    assert_eq!(whole["timings"]["decode_passes"], 15, "the first token comes with the prompt");
    let tokens: Vec<u64> = whole["tokens"].as_array().unwrap().iter().map(|t| t.as_u64().unwrap()).collect();
    let at = (4..tokens.len()).find(|&at| !tokens[..at].contains(&tokens[at])).unwrap();
    let dir = TempDir::new().unwrap();
    let model = ended_by(u32::try_from(tokens[at]).unwrap(), &dir);
    let ended =
        json(&run(["run", model.to_str().unwrap(), "-p", PROMPT, "-n", "16", "--temp", "0", "--json"]));
    assert_eq!(
        (&ended["stop"], ended["tokens"].as_array().unwrap().len()),
        (&Value::from("end_of_text"), at)
    );
    assert_eq!(ended["timings"]["decode_passes"], at as u64);
}

#[test]
fn prompts_come_from_arguments_files_and_stdin() {
    let model = bundled();
    let model = model.to_str().unwrap();
    let expected = generate(&[]);
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("prompt.txt");
    fs::write(&file, format!("{PROMPT}\n")).unwrap();
    let options = ["-n", "16", "--temp", "0"];
    let from_file = run(["run", model, "-f", file.to_str().unwrap()].iter().chain(&options));
    assert_eq!(stdout(&from_file), stdout(&expected));

    let mut child = terrace()
        .args(["run", model].iter().chain(&options))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.take().unwrap(), "{PROMPT}").unwrap();
    assert_eq!(stdout(&child.wait_with_output().unwrap()), stdout(&expected));
}

#[test]
fn without_a_model_the_bundled_one_runs_and_says_so() {
    let output = run(["run", "-p", PROMPT, "-n", "2", "--temp", "0"]);
    assert!(output.status.success());
    assert!(stderr(&output).contains("bundled") && stderr(&output).contains("tiny-moe-Q4_K.gguf"));
    let output =
        terrace().args(["run", "-p", "x"]).env("TERRACE_BUNDLED_MODEL", "/nonexistent").output().unwrap();
    assert!(failure(&output, 1).contains("/nonexistent"));
}

#[test]
fn a_seed_makes_sampling_repeatable() {
    let model = bundled();
    let sample = |seed| {
        let args =
            ["run", model.to_str().unwrap(), "-p", PROMPT, "-n", "24", "--temp", "1.5", "--seed", seed];
        run(args).stdout
    };
    assert_eq!(sample("7"), sample("7"));
    assert_ne!(sample("7"), sample("8"));
}

#[test]
fn verbose_shows_the_plan() {
    assert_eq!(stderr(&generate(&[])).lines().count(), 1, "a line otherwise");
    let text = stderr(&generate(&["-v", "--stream", "experts", "--ram-budget", "4MiB"]));
    assert!(text.contains("experts stream") && text.contains("context"), "{text}");
}

#[test]
fn chat_applies_the_models_template() {
    let plain = json(&generate(&["--json"]));
    let chat = json(&generate(&["--json", "--chat"]));
    let with_system = json(&generate(&["--json", "--chat", "--system", "Answer in rhymes."]));
    let tokens = |report: &Value| report["prompt_tokens"].as_u64().unwrap();
    assert!(tokens(&chat) > tokens(&plain), "the template adds its own");
    assert!(tokens(&with_system) > tokens(&chat));
}

#[test]
fn chat_without_a_template_is_refused() {
    let dir = TempDir::new().unwrap();
    let model = dir.path().join("plain.gguf");
    let mut bytes = fs::read(bundled()).unwrap();
    let key = b"tokenizer.chat_template";
    let at = bytes.windows(key.len()).position(|part| part == key).unwrap();
    bytes[at + key.len() - 1] = b'X';
    fs::write(&model, bytes).unwrap();
    let error = failure(&run(["run", model.to_str().unwrap(), "--chat", "-p", "x"]), 2);
    assert!(error.contains("chat template"), "{error}");
}

#[test]
fn inspect_counts() {
    let model = bundled();
    let report = json(&run(["inspect", model.to_str().unwrap(), "--json"]));
    assert_eq!(report["architecture"], "qwen3moe");
    let size = fs::metadata(&model).unwrap().len();
    assert_eq!(report["file_bytes"], size);
    let sum = |list: &str| -> u64 {
        report[list].as_array().unwrap().iter().map(|entry| entry["bytes"].as_u64().unwrap()).sum()
    };
    assert_eq!(report["tensor_bytes"], sum("types"));
    assert_eq!(report["tensor_bytes"], sum("classes"));
    assert_eq!(sum("shards"), size);
    let table = run(["inspect", model.to_str().unwrap()]);
    for word in ["qwen3moe", "experts", "token cycle", "q4_K"] {
        assert!(stdout(&table).contains(word), "{word}");
    }
}

#[test]
fn bench_compares_runs_that_agree() {
    let model = bundled();
    let common = ["bench", model.to_str().unwrap(), "-n", "6", "-r", "2", "--baseline"];
    let streaming = ["--stream", "experts", "--ram-budget", "4MiB"];
    let report = json(&run(common.iter().chain(&streaming).chain(&["--json"])));
    assert_eq!(report["tokens_agree"], true);
    assert_eq!(report["generated_tokens"], 6);
    for side in ["terrace", "stock"] {
        for key in ["decode_tps", "prompt_tps", "load_ms", "ttft_ms", "peak_rss_bytes"] {
            let spread = &report["sides"][side][key];
            let number = |field: &str| spread[field].as_f64().unwrap();
            assert!(
                0.0 < number("min") && number("min") <= number("median") && number("median") <= number("max")
            );
            assert_eq!(spread["values"].as_array().unwrap().len(), 2);
        }
    }
    assert!(report["sides"]["terrace"]["bytes_read"]["median"].as_f64().unwrap() > 0.0);
    assert!(report["ratio"]["decode_tps"]["median"].as_f64().unwrap() > 0.0);
    assert_eq!(report["sides"]["stock"]["mode"], "stock");

    let table = run(common.iter().chain(&streaming));
    assert!(table.status.success(), "{}", stderr(&table));
    assert!(stdout(&table).contains("decode, tokens/s") && stdout(&table).contains("terrace / stock"));
}

/// Rates on a busy machine say nothing, but they are there for all that was asked.
#[test]
fn bench_measures_kernels_without_a_model() {
    let rates = json(&run(["bench", "--kernel-rates=q4_0,f16", "-t", "2", "--json"]));
    let of = |list: &str, name: &str| {
        let all = rates[list].as_array().unwrap();
        assert!(all.iter().all(|one| one[name].as_f64().is_some_and(|rate| rate > 0.0)), "{rates:#}");
        all.iter().map(|one| one["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let products = [["q4_0"; 6], ["f16"; 6]].concat();
    assert_eq!(of("products", "gflops"), products);
    assert_eq!(of("products", "ggml_gflops"), products);
    assert_eq!(of("attention", "gbps"), ["f16", "f16", "f16", "q4_0", "q4_0", "q4_0"]);
    assert_eq!(of("attention", "ggml_gbps").len(), 6);
    let error = failure(&run(["bench", "--kernel-rates=q9_9"]), 2);
    assert!(error.contains("there is no kernel for type 'q9_9'"), "{error}");
    let apart = run(["bench", "--kernel-rates", "q4_0,f16"]);
    assert_eq!(failure(&apart, 2), "'q4_0,f16' is read as a model, and --kernel-rates needs none");
    assert!(stderr(&apart).ends_with("hint: name types as in --kernel-rates=q4_0,f16\n"), "{apart:?}");
}

/// Estimates are about the prompt that is given, not the usual one, and about the kernels that compute.
#[test]
fn estimates_are_of_the_work_that_is_given() {
    let streamed = ["--stream", "experts", "--ram-budget", "4MiB", "--json"];
    let report = json(&generate(&streamed));
    let plan = &report["plan"]["placement"];
    let estimate = &plan["given"];
    assert_eq!((&estimate["expected"], &plan["estimate"]["expected"]), (&"given".into(), &"assumed".into()));
    assert_eq!(estimate["prompt_tokens"], report["prompt_tokens"]);
    assert_eq!(estimate["output_tokens"], 16);
    let long = json(&generate(&[&streamed[..], &["--prompt-tokens", "200"]].concat()));
    assert_eq!(long["plan"]["placement"]["given"]["prompt_tokens"], 200);
    let model = bundled();
    let rates = |kernels| {
        let plan = json(&run(["plan", model.to_str().unwrap(), "--kernels", kernels, "--json"]));
        let rates = plan["rates"].as_array().unwrap().clone();
        rates.iter().map(|rate| rate["what"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let attention = "attention of a token".to_owned();
    assert!(rates("fast").contains(&attention) && !rates("exact").contains(&attention));
}

#[test]
fn bench_passes_on_why_a_run_failed() {
    let error = failure(&run(["bench", "/nonexistent.gguf", "-r", "1"]), 1);
    assert!(error.contains("/nonexistent.gguf"), "{error}");
}

#[test]
fn flags_come_before_environment_before_file() {
    let dir = TempDir::new().unwrap();
    let config = dir.path().join("terrace/config.toml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    fs::write(&config, "ctx = 256\nbatch = 64\nram-buget = \"1GiB\"\n").unwrap();
    let model = bundled();
    let context = |variable: Option<&str>, flags: &[&str]| {
        let mut command = terrace();
        command
            .args(["run", model.to_str().unwrap(), "-p", "x", "-n", "1", "--temp", "0", "--json"])
            .args(flags);
        command.env("XDG_CONFIG_HOME", dir.path());
        if let Some(value) = variable {
            command.env("TERRACE_CTX", value);
        }
        let output = command.output().unwrap();
        let text = stderr(&output);
        assert!(text.contains("unknown key `ram-buget`; did you mean `ram-budget`?"), "{text}");
        let plan = json(&output)["plan"].clone();
        (plan["context"].as_u64().unwrap(), plan["batch"].as_u64().unwrap())
    };
    assert_eq!(context(None, &[]), (256, 64));
    assert_eq!(context(Some("512"), &[]), (512, 64));
    assert_eq!(context(Some("512"), &["--ctx", "768"]), (768, 64));
}

#[test]
fn settings_that_mean_nothing_are_reported() {
    let output = terrace()
        .args(["inspect", bundled().to_str().unwrap()])
        .env("TERRACE_RAM_BUGDET", "1")
        .env("TERRACE_\u{1b}[2J", "1")
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = stderr(&output);
    assert!(text.contains("TERRACE_RAM_BUGDET") && text.contains("TERRACE_RAM_BUDGET"), "{text}");
    assert!(text.contains("TERRACE_\\u{1b}[2J") && !text.contains('\u{1b}'), "{text}");

    let dir = TempDir::new().unwrap();
    let config = dir.path().join("mine.toml");
    fs::write(&config, "ctx = \"many\"").unwrap();
    let error = failure(&run(["run", "m.gguf", "-p", "x", "--config", config.to_str().unwrap()]), 2);
    assert!(error.contains("mine.toml") && error.contains("`ctx`"), "{error}");
    let error = failure(&run(["run", "m.gguf", "-p", "x", "--config", "/nonexistent.toml"]), 2);
    assert!(error.contains("/nonexistent.toml"), "{error}");
}
