//! Other spellings of options, with the real binary: llama.cpp's, and Terrace's old ones.

use crate::common::{bundled, failure, json, run, stderr, stdout, terrace};
use crate::server::Server;
use std::fs;

/// Runs the bundled model for a few tokens.
fn generate(more: &[&str]) -> serde_json::Value {
    let model = bundled();
    let args = ["run", model.to_str().unwrap(), "-p", "In the beginning", "--temp", "0", "--json"];
    json(&run(args.iter().chain(more)))
}

#[test]
fn theirs_and_ours_do_the_same() {
    let model = bundled();
    let ours = generate(&["-n", "8", "--ctx", "512"]);
    let theirs = [
        "run",
        "-m",
        model.to_str().unwrap(),
        "-p",
        "In the beginning",
        "--temperature=0",
        "--json",
        "--predict",
        "8",
        "-c",
        "512",
        "-fa",
        "on",
        "-ngl",
        "auto",
        "--no-warmup",
    ];
    let theirs = json(&run(theirs));
    assert_eq!(theirs["tokens"], ours["tokens"]);
    assert_eq!(theirs["plan"]["context"], ours["plan"]["context"]);
}

#[test]
fn keys_and_values_have_types_of_their_own() {
    for types in [["q8_0", "f16"], ["f16", "q4_0"], ["bf16", "iq4_nl"], ["f32", "q5_1"], ["q4_1", "q5_0"]] {
        let options = ["-n", "8", "-ctk", types[0], "-ctv", types[1]];
        let streamed = ["--stream", "experts", "--ram-budget", "4MiB"];
        let ours = generate(&[&options[..], &streamed].concat());
        let stock = generate(&[&options[..], &["--stock"]].concat());
        assert_eq!(ours["tokens"], stock["tokens"], "{types:?}");
        assert_eq!(ours["plan"]["kv_type"], format!("{}/{}", types[0], types[1]));
    }
}

#[test]
fn what_is_not_to_be_had_is_refused_with_the_reason() {
    for (words, reason) in [
        (vec!["run", "--override-kv", "a.b=int:1"], "--override-kv: Terrace plans from the file's header"),
        (vec!["run", "--list-devices"], "--list-devices: it prints a list and exits"),
        (vec!["serve", "--rope-scaling", "yarn"], "--rope-scaling: positions are always encoded"),
        (vec!["perplexity", "-c", "0", "-f", "/dev/null"], "--ctx 0: the text is evaluated in chunks"),
        (vec!["run", "--mmap", "--stream", "experts", "x.gguf", "-p", "x"], "--mmap leaves all weights"),
    ] {
        let output = run(&words);
        let error = failure(&output, 2);
        assert!(error.contains(reason), "{words:?}: {error}");
        assert!(stderr(&output).contains("hint: "), "{words:?}");
    }
}

/// Everything that is ignored is one line, and the rest of the command line counts.
#[test]
fn what_users_paste_runs() {
    let model = bundled();
    let model = model.to_str().unwrap();
    let ours = generate(&["-n", "8", "--ctx", "1024"]);
    let words = "-c 0 -n 8 --temp 0 -ngl 99 --fit on --mlock --numa distribute --prio 2 --poll 50 --keep -1 -e \
                 --swa-full --cache-ram 64 --reasoning-budget 0 --spec-type none --tensor-read-lazy \
                 -sm none -mg 0 -ts 1,1 -np 1 --no-perf --log-disable --color -st -kvu \
                 --no-display-prompt -fa on --cache-reuse 256 --json";
    let output =
        run(["run", "-m", model, "-p", "In the beginning"].into_iter().chain(words.split_whitespace()));
    let said = stderr(&output);
    assert_eq!(json(&output)["tokens"], ours["tokens"], "{said}");
    let warnings: Vec<&str> =
        said.lines().filter(|line| line.contains("warning") || line.contains("WARN")).collect();
    let ignored = warnings.iter().find(|line| line.contains("ignored: ")).unwrap();
    for part in ["--mlock (", "--numa (", "--keep (", "--log-disable (", "-ts (", "--cache-reuse ("] {
        assert!(ignored.contains(part), "{part}: {ignored}");
    }
    let accelerator = warnings.iter().filter(|line| line.contains("nothing is on accelerators")).count();
    assert_eq!((warnings.len(), accelerator), (2, 1), "{said}");
}

/// llama.cpp's cache of experts on devices is Terrace's.
#[test]
fn an_expert_cache_in_mib_is_a_hot_cache() {
    let model = bundled();
    let base = ["run", "-m", model.to_str().unwrap(), "-p", "x", "-n", "1", "--moe-cache-mib"];
    let said = |size: &str| {
        let output = run(base.into_iter().chain([size]));
        (output.status.code(), stderr(&output))
    };
    let (status, text) = said("512");
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("note: --moe-cache-mib (each accelerator gets this size"), "{text}");
    let (status, text) = said("0");
    assert!(status == Some(0) && !text.contains("cache"), "{text}");
    let (status, text) = said("much");
    assert!(status == Some(2) && text.contains("must be a number of MiB"), "{text}");
}

#[test]
fn texts_end_where_a_stop_text_would_begin() {
    let text = |more: &[&str]| {
        let words = [&["-n", "24"][..], more].concat();
        generate(&words)["text"].as_str().unwrap().to_owned()
    };
    let whole = text(&[]);
    let stop = whole.split_whitespace().nth(3).unwrap();
    let before = whole.split(stop).next().unwrap();
    assert_eq!(text(&["--stop", stop]), before, "{whole}");
    assert_eq!(text(&["-r", "never there", "-r", stop]), before, "{whole}");
}

#[test]
fn llama_servers_context_is_divided_among_its_slots() {
    let context = |words: &str| {
        let server = Server::start(&bundled(), words.split(' '));
        server.get("/props").ok()["default_generation_settings"]["n_ctx"].as_u64().unwrap()
    };
    assert_eq!(context("-np 2 -c 1024"), 512);
    assert_eq!(context("-np 2 -c 1024 -kvu"), 1024);
    assert_eq!(context("-np 2 --ctx 1024"), 1024);
}

#[test]
fn rules_stream_what_can_stream() {
    let plan = generate(&["-n", "1", "-ot", "ffn=disk"]);
    assert!(plan["plan"]["slots"].as_u64().unwrap() > 0, "{plan}");
    let output = run(["plan", bundled().to_str().unwrap(), "-ot", "ffn=disk"]);
    let text = format!("{}{}", stdout(&output), stderr(&output));
    assert!(text.contains("`ffn=disk`: ") && text.contains("stay in RAM"), "{text}");
    // With little memory, llama.cpp's `CPU` does not keep experts in RAM.
    generate(&["-n", "1", "-ot", r"blk\.[0-9]\..*exps=CPU,.ffn_.*_exps.=CPU", "--ram-budget", "4MiB"]);
}

#[test]
fn what_nobody_knows_comes_with_the_nearest() {
    let output = run(["run", "--ctx-sized", "5"]);
    let error = failure(&output, 2);
    assert!(error.contains("--ctx-sized"), "{error}");
    assert!(stderr(&output).contains("--ctx"), "{}", stderr(&output));
}

#[test]
fn help_has_our_own_names_only() {
    for command in ["run", "serve", "bench", "plan", "perplexity", "optimize"] {
        let output = run([command, "--help"]);
        let help = stdout(&output);
        for theirs in [
            "--manage",
            "--ctx-size",
            "--batch-size",
            "-ngl",
            "-ctk",
            "--gpu-layers",
            "--hotswap",
            "--profile",
            "TERRACE_MANAGE",
        ] {
            assert!(!help.contains(theirs), "{command}: {theirs}");
        }
    }
    let all = run(["--help"]);
    assert!(stdout(&all).contains("  machine ") && !stdout(&all).contains("  profile "));
}

#[test]
fn variables_and_keys_have_their_old_names_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    fs::write(&file, "manage = \"everything\"\n").unwrap();
    let error = failure(&run(["run", "x", "--config", file.to_str().unwrap()]), 2);
    assert!(
        error.contains("key `manage`") && error.contains("[possible values: experts, ffn, all, none, auto]"),
        "{error}"
    );
    let output = terrace().args(["run", "x"]).env("TERRACE_MANAGE", "everything").output().unwrap();
    assert!(failure(&output, 2).contains("everything"), "{}", stderr(&output));
    let mut both = terrace();
    both.args(["run", "/none", "-p", "x"]).env("TERRACE_MANAGE", "everything").env("TERRACE_STREAM", "none");
    let output = both.output().unwrap();
    assert!(failure(&output, 1).contains("/none"), "{}", stderr(&output));
}
