//! `terrace bench --baseline=LIST` with a device: an RPC server with little memory.

use crate::common::{bundled, failure, json, run, stderr};
use terrace_model::ByteSize;
use terrace_testkit::rpc::RpcServer;

/// Stock's best splits are searched for, and compared with Terrace on the CPU.
#[test]
fn stocks_best_splits_are_found() {
    let server = RpcServer::start(ByteSize::mib(16)).unwrap();
    let model = bundled();
    let bench = [
        "bench",
        model.to_str().unwrap(),
        "--rpc",
        server.endpoint(),
        "--ctx=256",
        "--n-gpu-layers=0",
        "--threads=1",
        "--hot-cache=off",
        "--baseline=cpu,best",
        "-n4",
        "-r1",
    ];
    let output = run(bench.iter().chain(&["--json"]));
    assert!(output.status.success(), "{}", stderr(&output));
    let report = json(&output);
    let sides: Vec<&str> = report["sides"].as_object().unwrap().keys().map(String::as_str).collect();
    let count = |name: &str| {
        let of = sides.iter().find_map(|side| side.strip_prefix(name));
        of.unwrap_or_else(|| panic!("no {name} in {sides:?}")).parse::<u32>().unwrap()
    };
    assert!(sides.contains(&"stock") && sides.contains(&"stock cpu-moe"), "{sides:?}");
    // The model has 6 layers and the output head, with experts of 20 MiB.
    let (experts_in_ram, layers) = (count("stock n-cpu-moe "), count("stock ngl "));
    assert!((1..6).contains(&experts_in_ram) && (1..7).contains(&layers), "{sides:?}");
    // The device is a CPU, but one with other kernels for some shapes.
    assert!(report["logits_deviation"].as_f64().unwrap() < 0.01, "{report}");
    assert!(report["ratio"]["decode_tps"]["median"].as_f64().unwrap() > 0.0);
}

#[test]
fn baselines_that_are_none_are_refused() {
    let model = bundled();
    let error = failure(&run(["bench", model.to_str().unwrap(), "--baseline=gpu"]), 2);
    assert!(error.contains("cpu-moe"), "{error}");
    let error = failure(&run(["bench", model.to_str().unwrap(), "--tolerance", "0.1"]), 2);
    assert!(error.contains("--baseline"), "{error}");
}
