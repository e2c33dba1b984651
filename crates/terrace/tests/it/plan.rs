//! `terrace plan`: golden plans of well-known models on described machines, and the effects of
//! options.
//!
//! `UPDATE_GOLDEN=1 cargo nextest run --release -p terrace -- plan::big_models` writes the golden
//! files again; read the differences.

use crate::common::{bundled, failure, json, run, stderr, stdout, terrace};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;
use tempfile::TempDir;
use terrace_testkit::Mix;
use terrace_testkit::big::{self, Data, Preset};
use terrace_testkit::{WeightType, thorough};

/// The machines described beside this file.
const MACHINES: [&str; 4] = ["laptop-32", "desktop-64-gpu-12", "workstation-128-2x24", "server-768"];

/// Machines with one device of 8, 16, 24 and 48 GB, with two unequal ones, with one that has no memory of its own, and
/// Macs, whose GPU holds weights in main memory.
const DEVICES: [&str; 9] = [
    "desktop-64-gpu-8",
    "desktop-64-gpu-16",
    "desktop-64-gpu-24",
    "desktop-64-gpu-48",
    "desktop-64-gpus-24-8",
    "unified-96",
    "mac-m1-max-32",
    "mac-m5-pro-64",
    "mac-studio-512",
];

/// The models that are planned on these.
const ON_DEVICES: [Preset; 3] = [Preset::Mixtral8x7b, Preset::Llama70b, Preset::GptOss120b];

/// The models' headers in their published mixes, with holes in place of the weights.
const MODELS: [(Preset, Mix); 7] = [
    (Preset::Mixtral8x7b, Mix::Q5KM),
    (Preset::Llama70b, Mix::Q4KM),
    (Preset::Qwen3_235bA22b, Mix::Q4KM),
    (Preset::Qwen3CoderNext, Mix::Q4KM),
    (Preset::GptOss120b, Mix::Q4KM),
    (Preset::DeepseekV3, Mix::Q4KM),
    (Preset::KimiK2, Mix::Q4KM),
];

fn beside(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(path)
}

fn profile(machine: &str) -> String {
    beside(&format!("machines/{machine}.json")).display().to_string()
}

/// A model's header, written once per test run.
fn header(preset: Preset) -> String {
    static DIR: OnceLock<TempDir> = OnceLock::new();
    let path = DIR.get_or_init(|| TempDir::new().unwrap()).path().join(format!("{}.gguf", preset.name()));
    if !path.exists() {
        let (_, mix) = MODELS.iter().find(|(model, _)| *model == preset).unwrap();
        big::write(&mix.apply(preset.spec()), &path, Data::Sparse).unwrap();
    }
    path.display().to_string()
}

fn plan(model: &str, machine: &str, more: &[&str]) -> Output {
    run(["plan", model, "--profile", &profile(machine)].iter().chain(more))
}

/// A plan of the bundled model, which fits with plenty of room.
fn bundled_plan(more: &[&str]) -> Output {
    plan(bundled().to_str().unwrap(), "laptop-32", more)
}

#[test]
fn big_models_on_four_machines() {
    compare_with_golden(MODELS.map(|(preset, _)| preset), MACHINES);
}

#[test]
fn big_models_on_devices() {
    compare_with_golden(ON_DEVICES, DEVICES);
    // Runs leave a device without memory of its own alone.
    for preset in ON_DEVICES {
        let unified = plan(&header(preset), "unified-96", &[]);
        let without = plan(&header(preset), "unified-96", &["--what-if", "device=none"]);
        let of = |output: &Output| line_of(stdout(output), "decode ");
        assert_eq!(of(&unified), of(&without));
        assert!(stdout(&unified).contains("gpu0 has no memory of its own"), "{}", stdout(&unified));
    }
}

/// Whether this is the source of a rate for which the machine was probed. Other programs may have been in the way.
pub fn is_probed(source: &str) -> bool {
    source.starts_with("quick probe of ") || source == "assumed, as the machine is busy"
}

/// The first line of a text that begins like this.
fn line_of(text: &str, begin: &str) -> String {
    text.lines().find(|line| line.starts_with(begin)).unwrap().to_owned()
}

fn compare_with_golden<const P: usize, const M: usize>(presets: [Preset; P], machines: [&str; M]) {
    let mut different = Vec::new();
    // Half of the combinations: each model and each machine is among them.
    let each = if std::env::var_os("UPDATE_GOLDEN").is_some() { 1 } else { thorough(2, 1) };
    for (number, preset) in presets.into_iter().enumerate() {
        let model = header(preset);
        for machine in machines.into_iter().skip(number % each).step_by(each) {
            let output = plan(&model, machine, &[]);
            assert!(output.status.success(), "{}", stderr(&output));
            let longest = stdout(&output).lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(80), "{}", stdout(&output));
            let golden = beside(&format!("golden/plan/{machine}/{}.txt", preset.name()));
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                fs::create_dir_all(golden.parent().unwrap()).unwrap();
                fs::write(&golden, stdout(&output)).unwrap();
            }
            if fs::read_to_string(&golden).unwrap_or_default() != stdout(&output) {
                different.push(golden.display().to_string());
            }
        }
    }
    assert!(different.is_empty(), "other plans than in {different:#?}");
}

/// A longer prompt and a shorter answer weigh prefill more.
#[test]
fn plans_weigh_what_is_expected() {
    let model = header(Preset::Mixtral8x7b);
    let of = |more: &[&str]| {
        let report =
            json(&plan(&model, "desktop-64-gpu-16", &[more, &["--ctx", "16384", "--json"]].concat()));
        let estimate = report["estimate"].clone();
        let number = |key: &str| estimate[key].as_f64().unwrap();
        let answer = number("prompt_tokens") / number("prefill_tok_s")
            + number("output_tokens") / number("decode_tok_s");
        assert!((number("answer_ms") / 1e3 / answer - 1.0).abs() < 0.01, "{estimate}");
        (estimate["expected"].as_str().unwrap().to_owned(), number("prefill_tok_s"), number("decode_tok_s"))
    };
    let prompts = of(&["--expect-prompt", "8192", "--expect-output", "16"]);
    let answers = of(&["--expect-prompt", "16", "--expect-output", "4096"]);
    assert_eq!((of(&[]).0, prompts.0, answers.0), ("assumed".into(), "stated".into(), "stated".into()));
    assert!(answers.2 >= prompts.2, "long answers are not decoded more slowly: {} {}", answers.2, prompts.2);
    assert!(prompts.1 > answers.1);
}

/// Weights in memory are read once for several tokens, except in types of which the CPU computes products token by
/// token.
#[test]
fn drafts_in_ram_pay_by_type() {
    let dir = TempDir::new().unwrap();
    let gain = |ty: WeightType| {
        let path = dir.path().join(format!("{ty:?}.gguf"));
        big::write(&Preset::Llama8b.spec().with_type(ty), &path, Data::Sparse).unwrap();
        let plan = json(&plan(path.to_str().unwrap(), "server-768", &["--json"]));
        plan["estimate"]["drafts"]["gain"].as_f64().unwrap()
    };
    assert!(gain(WeightType::Q4_K) > 1.5);
    assert!(gain(WeightType::F16) < 1.03);
}

/// Two published measurements of another storage-tiered scheduler on an Apple M1 Max with 32 GB:
/// the plan has the same mode, and an estimate from 0.7 to 5 times the measured tokens per second.
#[test]
fn the_published_cases_land_in_their_modes() {
    for (preset, mode, measured) in
        [(Preset::Mixtral8x7b, "expert-streaming", 2.19), (Preset::Llama70b, "dense-ffn-streaming", 0.30)]
    {
        let report = json(&plan(&header(preset), "m1-max-32", &["--json", "--ctx", "512"]));
        assert_eq!(report["mode"], mode);
        let estimate = report["estimate"]["decode_tok_s"].as_f64().unwrap();
        assert!(estimate > measured * 0.7 && estimate < measured * 5.0, "{estimate} beside {measured}");
    }
}

#[test]
fn json_reads_back_and_holds_what_the_text_says() {
    let model = header(Preset::Qwen3CoderNext);
    let output = plan(&model, "laptop-32", &["--json"]);
    let plan_read: terrace_plan::Plan = serde_json::from_str(stdout(&output)).unwrap();
    assert!(terrace_plan::PlanFile::from_json(stdout(&output)).is_ok());
    let report = json(&output);
    assert_eq!(report["mode"], "expert-streaming");
    assert!(!report["advice"].as_array().unwrap().is_empty());
    let text = plan(&model, "laptop-32", &[]);
    assert!(stdout(&text).contains(&plan_read.tables(80).to_string()), "{}", stdout(&text));
    // Piped output has no colours, whatever the variables say.
    assert!(!stdout(&text).contains('\x1b'));
}

#[test]
fn what_if_changes_the_machine() {
    let model = header(Preset::Mixtral8x7b);
    let speed = |more: &[&str]| {
        let report = json(&plan(&model, "laptop-32", &[more, &["--json"]].concat()));
        (report["mode"].as_str().unwrap().to_owned(), report["estimate"]["decode_tok_s"].as_f64().unwrap())
    };
    let (mode, now) = speed(&[]);
    assert_eq!(mode, "expert-streaming");
    let (mode, roomy) = speed(&["--what-if", "ram=64GiB,device=24GiB@1TB/s"]);
    // Some experts have copies on the device, and slots hold all others.
    assert!(mode == "expert-streaming" && roomy > 2.0 * now, "{mode}: {now} became {roomy}");
    let (_, budget) = speed(&["--ram-budget", "6GiB"]);
    assert!(budget < now);
    // Slots for less than a token's experts hit nothing, however they are chosen.
    let (_, typical) = speed(&["--ram-budget", "16GiB"]);
    let (_, uniform) = speed(&["--ram-budget", "16GiB", "--hits", "uniform"]);
    assert!(uniform < typical, "{uniform} {typical}");
    let (_, long) = speed(&["--ctx", "32768"]);
    let (_, quantised) = speed(&["--ctx", "32768", "--kv-type", "q8_0"]);
    assert!(long < quantised && quantised <= now, "{long} {quantised} {now}");
}

#[test]
fn tensors_are_explained() {
    let model = header(Preset::Llama70b);
    let about = plan(&model, "laptop-32", &["--explain", "blk.0.ffn_up.weight"]);
    let text = stdout(&about);
    assert!(
        text.contains("dense FFN") && text.contains("every token") && text.contains("ms per token"),
        "{text}"
    );
    let error = failure(&plan(&model, "laptop-32", &["--explain", "blk.0.ffn_upp.weight"]), 1);
    assert!(error.contains("did you mean `blk.0.ffn_up.weight`"), "{error}");
}

#[test]
fn the_drawing_is_well_formed() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("plan.svg");
    let output =
        plan(&header(Preset::GptOss120b), "workstation-128-2x24", &["--svg", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let svg = fs::read_to_string(&file).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    let (opened, closed) = (svg.matches("<text").count(), svg.matches("</text>").count());
    assert!(opened == closed && opened >= 5);
    assert!(svg.contains(">gpu1<") && svg.matches("<rect").count() > 36, "{svg}");
}

#[test]
fn this_machine_is_probed_and_says_so() {
    let home = TempDir::new().unwrap();
    let unmeasured = |more: &[&str]| {
        let mut command = terrace();
        command
            .env("HOME", home.path())
            .args(["plan", bundled().to_str().unwrap()])
            .args(more)
            .output()
            .unwrap()
    };
    let output = unmeasured(&["--json", "--what-if", "nvme=7GB/s", "--available-memory", "8GiB"]);
    let report = json(&output);
    assert_eq!((report["machine"].as_str(), report["mode"].as_str()), (Some("this machine"), Some("mapped")));
    assert!(report["estimate"]["decode_tok_s"].as_f64().unwrap() > 0.0);
    let rates = report["rates"].as_array().unwrap();
    let rate = |what: &str| {
        let rate = rates.iter().find(|rate| rate["what"] == what).unwrap();
        (rate["source"].as_str().unwrap(), rate["value"].as_f64().unwrap())
    };
    for what in ["memory", "q4_K decode", "q4_K prefill", "layer overhead"] {
        let (source, value) = rate(what);
        assert!(is_probed(source) && value > 0.0, "{what}: {value} by {source}");
    }
    assert_eq!(rate("disk"), ("--what-if", 7e9));
    let text = unmeasured(&[]);
    let line =
        stdout(&text).lines().find(|line| line.starts_with("  ") && line.contains(": memory ")).unwrap();
    assert!(is_probed(line.trim().split(':').next().unwrap()), "{line}");
}

#[test]
fn a_recorded_trace_is_the_hit_curve() {
    let dir = TempDir::new().unwrap();
    let trace = dir.path().join("t.trace");
    let model = bundled();
    let recorded = run([
        "trace",
        "record",
        "--output",
        trace.to_str().unwrap(),
        model.to_str().unwrap(),
        "-p",
        "In the beginning",
        "-n",
        "32",
        "--temp",
        "0",
        "--manage",
        "experts",
        "--ram-budget",
        "8MiB",
    ]);
    assert!(recorded.status.success(), "{}", stderr(&recorded));
    let hits = |how: &str| {
        let report = json(&bundled_plan(&["--ram-budget", "6MiB", "--json", "--hits", how]));
        report["estimate"]["hit_rate"].as_f64().unwrap()
    };
    let (measured, uniform) = (hits(trace.to_str().unwrap()), hits("uniform"));
    assert!(measured > uniform, "a trained model repeats itself: {measured} and {uniform}");
}

#[test]
fn copies_are_packed_and_experts_ranked() {
    let (dir, model) = (TempDir::new().unwrap(), bundled());
    let learned = dir.path().join("learned.json");
    // The sixth layer uses few experts, and often.
    let layer = |layer: u32| {
        let experts: Vec<[u32; 2]> = (0..if layer == 5 { 4 } else { 32 })
            .map(|expert| [expert, if layer == 5 { 900 - expert } else { 40 - expert }])
            .collect();
        serde_json::json!({"layer": layer, "calls": 9, "experts": experts})
    };
    let layers: Vec<serde_json::Value> = (0..6).map(layer).collect();
    let schema = "llama.cpp.moe_layer_opt_perf.v1";
    let file = serde_json::json!({"schema": schema, "n_expert": 32, "layers": layers});
    fs::write(&learned, file.to_string()).unwrap();
    let args = |more: &[&str]| {
        let machine = profile("desktop-64-gpu-16");
        let fixed =
            ["plan", model.to_str().unwrap(), "--machine", &machine, "--ram-budget", "6MiB", "-ngl", "0"];
        let hot = ["--hot-cache", "2MiB", "--learned", learned.to_str().unwrap()];
        run(fixed.iter().chain(&hot).chain(more))
    };
    let packing = |more: &[&str]| json(&args(&[more, &["--json"]].concat()))["packing"].clone();
    let even = packing(&[]);
    let [device] = &even["devices"].as_array().unwrap()[..] else { panic!("{even:#}") };
    let number = |of: &serde_json::Value, name: &str| of[name].as_u64().unwrap();
    assert_eq!((number(device, "layers"), number(device, "experts")), (6, 6 * 32), "{even:#}");
    assert!(
        number(device, "packed") <= number(device, "bytes") && number(device, "bytes") <= 2 << 20,
        "{even:#}"
    );
    assert!(number(device, "most") <= number(device, "least") + 1, "{even:#}");
    let mean = device["mean"].as_f64().unwrap();
    assert!((mean - number(device, "slots") as f64 / 6.0).abs() < 1e-9, "{even:#}");
    let ranked = even["ranked"].as_array().unwrap();
    assert_eq!(ranked.len(), 5 * 32 + 4);
    assert_eq!(
        (&ranked[0]["layer"], &ranked[0]["expert"], &ranked[0]["uses"]),
        (&5.into(), &0.into(), &900.into())
    );
    let copied = ranked.iter().filter(|expert| expert["copied"] == true).count() as u64;
    assert!(copied <= number(device, "slots") && copied > 0, "{even:#}");
    // By uses, the layer with few experts gets no more than it uses.
    let by_uses = packing(&["--hot-weighting", "uses"]);
    assert!(number(&by_uses["devices"][0], "least") < number(&by_uses["devices"][0], "most"), "{by_uses:#}");
    let text = args(&[]);
    let text = stdout(&text);
    assert!(
        text.contains("experts that come first, as layer.expert: 5.0 (900 uses), 5.1 (899 uses)"),
        "{text}"
    );
    fs::write(&learned, file.to_string().replace("\"n_expert\":32", "\"n_expert\":64")).unwrap();
    assert!(failure(&args(&[]), 1).contains("64 experts per layer"));
}

#[test]
fn settings_come_from_the_environment_too() {
    let model = bundled();
    let budget = |command: &mut std::process::Command| {
        let args = ["plan", model.to_str().unwrap(), "--profile", &profile("laptop-32"), "--json"];
        let report = json(&command.args(args).output().unwrap());
        report["tiers"][0]["room"].as_u64().unwrap()
    };
    assert!(budget(terrace().env("TERRACE_RAM_BUDGET", "6MiB")) < budget(&mut terrace()));
}

#[test]
fn wrong_input_is_one_line() {
    let dir = TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let model = bundled();
    let model = model.to_str().unwrap();
    let no_profile = file("text.json", "fast");
    let stale = file(
        "stale.json",
        r#"{"version": 9, "name": "old", "cpu": {"cores": 2}, "memory": {"total": "1GiB", "available": "1GiB"}}"#,
    );
    let slow = file(
        "slow.json",
        r#"{"version": 1, "name": "slow", "cpu": {"cores": 2}, "memory": {"total": "1GiB", "available": "1GiB"},
            "storage": [{"sequential_bytes_per_s": -1}]}"#,
    );
    for (args, code, part) in [
        (vec!["--profile", &no_profile], 2, "not a description of a machine"),
        (vec!["--profile", &stale], 1, "version 9"),
        (vec!["--profile", &slow], 1, "sequential_bytes_per_s is -1"),
        (vec!["--profile", "/nonexistent/p.json"], 1, "/nonexistent/p.json"),
        (vec!["--what-if", "fans=3"], 2, "ram=64GiB"),
        (vec!["--what-if", "ram=1"], 1, "a context of 1024 tokens needs"),
        (vec!["--ram-budget", "64KiB"], 1, "the minimum is"),
        (vec!["--hits", "/nonexistent/t.trace"], 1, "/nonexistent/t.trace"),
        (vec!["--kv-type", "q3"], 2, "q8_0"),
        (vec!["--ctx", "-1"], 2, "ctx"),
        (vec!["--svg", "/nonexistent/dir/a.svg"], 1, "/nonexistent/dir/a.svg"),
        (vec!["--explain", "no.such.tensor"], 1, "no tensor `no.such.tensor`"),
        (vec!["--explain", "output.weight", "--json"], 2, "--json"),
    ] {
        let output = run(["plan", model].iter().chain(&args));
        let error = failure(&output, code);
        assert!(error.contains(part), "{args:?}: {error}");
    }
    let header = header(Preset::Llama70b);
    assert!(failure(&plan(&header, "laptop-32", &["--what-if", "ram=7GiB"]), 1).contains("too little RAM"));
}

#[test]
fn the_catalogue_says_what_a_machine_runs() {
    let machine = profile("laptop-32");
    let plan = |more: &[&str]| run(["plan", "--catalogue", "--machine", &machine].iter().chain(more));
    let entries = json(&plan(&["--json"]));
    let entries = entries.as_array().unwrap();
    let of = |name: &str| entries.iter().find(|entry| entry["model"] == name).unwrap();
    assert_eq!(entries.len(), 20);
    assert_eq!(of("Qwen3-4B")["fits"], true);
    let large = of("Qwen3-235B-A22B");
    assert_eq!((&large["fits"], &large["file_type"]), (&false.into(), &"Q4_K_M".into()));
    assert!(large["with_second_disk"].as_f64().unwrap() > 1.3, "{large}");
    let text = plan(&[]);
    let text = stdout(&text);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("Qwen3-235B-A22B   Q4_K_M"), "{text}");
    // Options of the run count.
    let tight = json(&plan(&["--json", "--what-if", "ram=8GiB"]));
    assert_eq!(
        tight.as_array().unwrap().iter().filter(|entry| entry["fits"] == true).count(),
        1,
        "{tight:#}"
    );
    failure(&run(["plan", "--catalogue", "model.gguf"]), 2);
    let idle = plan(&["--draft", "ngram", "--mmproj", "x.gguf", "--lora", "y.gguf", "--learned", "z.json"]);
    let warned = stderr(&idle);
    assert!(warned.contains("--draft, --lora, --mmproj, --learned") && idle.status.success(), "{warned}");
    assert!(failure(&plan(&["--workers", "1"]), 2).contains("--workers"));
    assert!(failure(&plan(&["--repack"]), 2).contains("--repack"));
}
