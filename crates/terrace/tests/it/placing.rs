//! Runs that follow plans: those of the cost model, edited ones, rules for tensors, and layers on
//! devices.

use crate::common::{bundled, failure, json, run, stderr, stdout, tiny};
use serde_json::Value;
use std::fs;
use std::process::Output;
use tempfile::TempDir;
use terrace_model::ByteSize;
use terrace_testkit::rpc::RpcServer;
use terrace_testkit::{Arch, Spec};

fn generate(more: &[&str]) -> Output {
    let bundled = bundled();
    let fixed = ["run", bundled.to_str().unwrap(), "-p", "In the beginning", "-n", "12", "--temp", "0"];
    run(fixed.iter().chain(more))
}

fn report(more: &[&str]) -> Value {
    json(&generate(&[more, &["--available-memory", "8GiB", "--json"]].concat()))
}

#[test]
fn every_placement_gives_the_same_tokens() {
    let dir = TempDir::new().unwrap();
    let golden = report(&["--stock"])["tokens"].clone();
    let plan = dir.path().join("plan.json");
    let bundled = bundled();
    let made = run(["plan", bundled.to_str().unwrap(), "--ram-budget", "6MiB", "--json"]);
    fs::write(&plan, stdout(&made)).unwrap();
    let plan = plan.to_str().unwrap();
    for (what, args) in [
        ("mapped", vec![]),
        ("expert-streaming", vec!["--ram-budget", "6MiB"]),
        ("expert-streaming", vec!["--plan", plan]),
        ("expert-streaming", vec!["--ram-budget", "12MiB", "-ot", r"blk\.[01]\..*exps=ram"]),
        ("mixed-streaming", vec!["-ot", "^output.weight=disk", "-ot", "exps=disk"]),
    ] {
        let report = report(&args);
        assert_eq!(report["tokens"], golden, "{what} {args:?}");
        assert!(report["mode"].as_str().unwrap().starts_with(what.split('-').next().unwrap()), "{report:#}");
        let estimate = &report["plan"]["placement"]["estimate"];
        assert!(estimate["decode_tok_s"].as_f64().unwrap() > 0.0, "{args:?}");
    }
}

#[test]
fn the_plan_is_said_in_a_line_and_whole() {
    let line = stderr(&generate(&["--ram-budget", "6MiB"]));
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(line.starts_with("streams experts through ") && line.contains(" tokens/s - context "), "{line}");
    assert!(line.ends_with("; -v prints the plan\n"), "{line}");
    let whole = stderr(&generate(&["--ram-budget", "6MiB", "-v"]));
    assert!(whole.contains("time per token") && whole.contains("cache 4."), "{whole}");
    let quiet = generate(&["--ram-budget", "6MiB", "--json"]);
    assert!(stderr(&quiet).is_empty(), "{}", stderr(&quiet));
}

#[test]
fn an_edited_plan_is_followed_to_the_tensor() {
    let dir = TempDir::new().unwrap();
    let bundled = bundled();
    let made = run(["plan", bundled.to_str().unwrap(), "--ram-budget", "8MiB", "--json", "--ctx", "300"]);
    let mut plan: Value = json(&made);
    let path = dir.path().join("plan.json");
    let ram = plan["tiers"].as_array_mut().unwrap().iter_mut().find(|tier| tier["tier"] == "ram").unwrap();
    ram["expert_cache"] = "2MiB".into();
    plan["streamed"] = serde_json::json!(["output.weight"]);
    fs::write(&path, plan.to_string()).unwrap();
    let report = report(&["--plan", path.to_str().unwrap()]);
    let placement = &report["plan"]["placement"];
    assert_eq!(placement["managed_tensors"], 18 + 1);
    assert_eq!(report["plan"]["placement"]["streamed"], plan["streamed"]);
    assert_eq!(report["plan"]["placement"]["context"]["tokens"], 300);
    assert!(report["plan"]["context"].as_u64().unwrap() >= 300);
    let slots: ByteSize = serde_json::from_value(placement["slots"].clone()).unwrap();
    assert!(slots >= ByteSize::mib(2) && slots < ByteSize::mib(3), "{slots}");
}

#[test]
fn what_cannot_be_followed_is_refused_in_a_line() {
    let dir = TempDir::new().unwrap();
    let bundled = bundled();
    let good = stdout(&run(["plan", bundled.to_str().unwrap(), "--ram-budget", "6MiB", "--json"])).to_owned();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let edit = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut plan: Value = serde_json::from_str(&good).unwrap();
        change(&mut plan);
        file(name, &plan.to_string())
    };
    let cases = [
        (vec!["--plan".to_owned(), "/nonexistent/plan.json".into()], 1, "/nonexistent/plan.json"),
        (vec!["--plan".into(), file("text", "hello")], 1, "not a plan"),
        (vec!["--plan".into(), edit("version", &|p| p["version"] = 99.into())], 1, "version 99"),
        (
            vec!["--plan".into(), edit("tensor", &|p| p["streamed"] = serde_json::json!(["blk.9.x"]))],
            1,
            "blk.9.x",
        ),
        (vec!["--plan".into(), edit("home", &|p| p["layers"][6]["home"] = "CUDA7".into())], 1, "CUDA7"),
        (
            vec!["--plan".into(), edit("order", &|p| p["layers"][1]["home"] = "CUDA7".into())],
            1,
            "after layers on devices",
        ),
        (vec!["--plan".into(), edit("big", &|p| p["tiers"][0]["ring"] = "900GiB".into())], 1, "does not fit"),
        (
            vec!["--plan".into(), edit("ctx", &|p| p["context"]["tokens"] = 3_000_000_000_u32.into())],
            1,
            "a context of 3000000000",
        ),
        (
            vec!["--plan".into(), file("good", &good), "--ram-budget".into(), "1GiB".into()],
            2,
            "cannot be used with",
        ),
        (vec!["-ot".into(), "nothing_like_it=ram".into()], 1, "no tensor"),
        (vec!["-ot".into(), "attn_norm=disk".into()], 1, "cannot be streamed"),
        (vec!["-ot".into(), "exps".into()], 2, "expected REGEX=ram"),
        (vec!["--rpc".into(), "127.0.0.1:1".into()], 1, "127.0.0.1:1"),
        (vec!["--kv-type".into(), "q6_k".into()], 2, "not a KV cache type"),
    ];
    for (args, code, part) in cases {
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        let line = failure(&generate(&words), code);
        assert!(line.contains(part), "{args:?}: {line}");
    }
    // Without accelerators, rules for them say where weights would be on another machine.
    let output = generate(&["-ot", "exps=CUDA7"]);
    assert!(output.status.success() && stderr(&output).contains("nothing is on accelerators"));
    let other = tiny(&dir);
    let output = run(["run", other.to_str().unwrap(), "-p", "x", "-n", "1", "--plan", &file("good", &good)]);
    assert!(failure(&output, 1).contains("the plan is for `terrace-tiny-moe`"));
}

#[test]
fn the_cache_can_be_smaller_and_says_that_it_is() {
    let exact = report(&["--ctx", "512"]);
    let smaller = report(&["--ctx", "512", "--kv-type", "q8_0"]);
    let bytes = |report: &Value| -> ByteSize {
        serde_json::from_value(report["plan"]["placement"]["context"]["cache"].clone()).unwrap()
    };
    assert_eq!(smaller["plan"]["kv_type"], "q8_0");
    assert_eq!(bytes(&smaller).bytes() * 64, bytes(&exact).bytes() * 34);
    let auto = report(&["--ctx", "512", "--kv-type", "auto"]);
    assert_eq!(auto["plan"]["kv_type"], "f16", "there is room");
    assert_eq!(auto["tokens"], exact["tokens"]);
}

#[test]
fn layers_on_a_device_give_the_same_tokens() {
    let server = RpcServer::start(ByteSize::mib(512)).unwrap();
    let golden = report(&["--stock"])["tokens"].clone();
    let on = |more: &[&str]| report(&[&["--rpc", server.endpoint()], more].concat());
    for (layers, args) in [
        (0, vec!["-ngl", "0", "--ram-budget", "6MiB"]),
        (3, vec!["-ngl", "3"]),
        (3, vec!["-ngl", "3", "--ram-budget", "4MiB"]),
        (3, vec!["-ngl", "3", "--ram-budget", "4MiB", "--manage", "experts"]),
        (7, vec!["-ngl", "7"]),
    ] {
        let report = on(&args);
        assert_eq!(report["tokens"], golden, "{args:?}");
        let homes = report["plan"]["placement"]["layers"].as_array().unwrap();
        let there = homes.iter().filter(|layer| layer["home"] == "RPC0").count();
        assert_eq!(there, layers, "{args:?}");
    }
    let on_host = on(&["-ngl", "7", "--kv-offload", "off"]);
    assert_eq!(on_host["tokens"], golden);
    let context = |report: &Value, tier: usize| -> ByteSize {
        serde_json::from_value(report["plan"]["placement"]["tiers"][tier]["context"].clone()).unwrap()
    };
    let there = on(&["-ngl", "7"]);
    assert!(context(&on_host, 0) > context(&there, 0) && context(&on_host, 1) < context(&there, 1));
    let single = on(&["-ngl", "0", "-ot", "blk.2.ffn_.*_exps=RPC0"]);
    assert_eq!(single["tokens"], golden);
    let on_devices: ByteSize =
        serde_json::from_value(single["plan"]["placement"]["on_devices"].clone()).unwrap();
    assert!(on_devices > ByteSize::mib(3), "{on_devices}");
    let refused = generate(&["--rpc", server.endpoint(), "-ngl", "7", "--vram-budget", "1MiB"]);
    assert!(failure(&refused, 1).contains("7 layers do not fit on RPC0"));
}

/// `run` does what `terrace plan` shows: with the same options, everything lives in the same place.
#[test]
fn a_plan_is_what_a_run_does() {
    let server = RpcServer::start(ByteSize::mib(512)).unwrap();
    let bundled = bundled();
    let rpc = ["--rpc", server.endpoint()];
    for args in [
        vec!["--ram-budget", "6MiB"],
        vec![],
        vec!["--ram-budget", "6MiB", "-ot", "exps=disk", "-ot", "^output.weight=disk"],
        [&rpc[..], &["-ngl", "3", "--ram-budget", "4MiB", "--stream", "experts"]].concat(),
        [&rpc[..], &["-ngl", "7"]].concat(),
        [&rpc[..], &["-ngl", "0", "--ram-budget", "6MiB", "--hot-cache", "2MiB"]].concat(),
    ] {
        let args = [&args[..], &["--ctx", "256"]].concat();
        let fixed = ["plan", bundled.to_str().unwrap(), "--available-memory", "8GiB", "--json"];
        let plan = json(&run(fixed.iter().chain(&args)));
        let run = report(&args)["plan"]["placement"].clone();
        for field in [
            "version",
            "mode",
            "manage",
            "budget",
            "auto_budget",
            "minimum",
            "resident",
            "mapped",
            "pinned",
            "slots",
            "managed_tensors",
            "managed_bytes",
            "on_devices",
            "token_cycle",
            "streamed",
            "read_by_row",
            "hot",
            "summary",
            "planner",
        ] {
            assert_eq!(plan[field], run[field], "{field} {args:?}");
        }
        let copies = plan["hot"].as_array().unwrap().len();
        assert_eq!(copies > 0, args.contains(&"--hot-cache"), "{copies} {args:?}");
        let homes = |plan: &Value| -> Vec<Value> {
            plan["layers"].as_array().unwrap().iter().map(|layer| layer["home"].clone()).collect()
        };
        assert_eq!(homes(&plan), homes(&run), "{args:?}");
    }
}

#[test]
fn devices_that_share_every_matrix_give_the_same_tokens() {
    let servers = [0, 1].map(|_| RpcServer::start(ByteSize::mib(512)).unwrap());
    let rpc = ["--rpc", servers[0].endpoint(), "--rpc", servers[1].endpoint(), "-sm", "tensor"];
    let refused = generate(&[&rpc[..], &["-ngl", "7"]].concat());
    let error = failure(&refused, 1);
    assert!(error.contains("cannot slice") && error.contains("blk.0."), "{error}");
    assert!(stderr(&refused).contains("--split-mode tensor"));
    let dir = tempfile::tempdir().unwrap();
    let spec = Spec { embd: 512, heads: 8, kv_heads: 4, ..Spec::new(Arch::Qwen3Moe) };
    let model = terrace_testkit::write(&spec, dir.path().join("wide.gguf")).unwrap();
    let run = |more: &[&str]| {
        let fixed = ["run", model.to_str().unwrap(), "-p", "The water", "-n", "16", "--temp", "0", "--json"];
        json(&run(fixed.iter().chain(more)))["tokens"].clone()
    };
    let golden = run(&["--stock"]);
    assert_eq!(run(&[&rpc[..], &["-ngl", "4"]].concat()), golden);
    assert_eq!(
        run(&[&rpc[..], &["-ngl", "2", "--manage", "experts", "--ram-budget", "8MiB"]].concat()),
        golden
    );
}

#[test]
fn bench_holds_the_plan_against_reality() {
    let bundled = bundled();
    let fixed = ["bench", bundled.to_str().unwrap(), "-n", "8", "-r", "1", "--check-plan"];
    let report = json(&run(fixed.iter().chain(&["--ram-budget", "6MiB", "--json"])));
    let checks = report["check_plan"].as_array().unwrap();
    let value = |term: &str, key: &str| -> f64 {
        let check =
            checks.iter().find(|check| check["term"] == term).unwrap_or_else(|| panic!("{term}: {checks:?}"));
        check[key].as_f64().unwrap()
    };
    let measured = report["sides"]["terrace"]["decode_tps"]["median"].as_f64().unwrap();
    assert_eq!(value("decode, tokens/s", "measured"), measured);
    let (estimate, error) =
        (value("decode, tokens/s", "estimate"), value("decode, tokens/s", "error_percent"));
    assert!((error - (estimate / measured - 1.0) * 100.0).abs() < 1e-6);
    for term in ["read, MiB", "reading, ms", "computing experts, ms", "hits, %"] {
        assert!(value(term, "measured") > 0.0 && value(term, "estimate") > 0.0, "{term}");
    }
    // On a busy machine, computing can hide all of the reading.
    assert!(value("waiting, ms", "measured") >= 0.0 && value("waiting, ms", "estimate") >= 0.0);
    let table = run(fixed);
    assert!(stdout(&table).contains("plan against reality"), "{}", stdout(&table));
}
