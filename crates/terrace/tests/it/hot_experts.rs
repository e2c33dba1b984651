//! `--hot-cache`: experts on a device of another process, by options of the command line.

use crate::common;
use crate::common::{bundled, failure, json, run, stderr};
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::process::{Output, Stdio};
use tempfile::TempDir;
use terrace_model::ByteSize;
use terrace_testkit::rpc::RpcServer;

fn generate(more: &[&str]) -> Output {
    let bundled = bundled();
    let fixed = ["run", bundled.to_str().unwrap(), "-p", PROMPT, "-n", "24", "--temp", "0"];
    // A layer of this model takes less than a round trip.
    run(fixed.iter().chain(&["--hot-lanes", "always"]).chain(more))
}

fn report(more: &[&str]) -> Value {
    json(&generate(&[more, &["--json"]].concat()))
}

/// More tokens than a graph of decoding has.
const PROMPT: &str =
    "In the beginning was the word, and the word was with all who would hear it in the morning";
const STREAMED: [&str; 4] = ["--ram-budget", "6MiB", "-ngl", "0"];

#[test]
fn tokens_are_the_same_and_the_device_has_a_part() {
    let server = RpcServer::start(ByteSize::mib(256)).unwrap();
    let golden = report(&["--stock"])["tokens"].clone();
    let with = ["--rpc", server.endpoint(), "--hot-cache", "2MiB", "--hot-update", "512KiB"];
    let run = report(&[&STREAMED[..], &with, &["--warm-start", "off"]].concat());
    assert_eq!(run["tokens"], golden);
    let hot = &run["hot_experts"];
    let count = |key: &str| hot[key].as_u64().unwrap();
    assert!(count("hot") > 0 && count("cold") > 0 && count("bypassed") > 0, "{hot:#}");
    assert!(count("memory") <= 2 << 20 && count("filled") > 0, "{hot:#}");
    let device = &run["plan"]["hot"]["devices"][0];
    assert_eq!(device["device"], "RPC0");
    assert!(device["bytes"].as_u64().unwrap() <= 2 << 20 && device["slots"].as_u64().unwrap() > 0);
    let text = stderr(&generate(&[&STREAMED[..], &with, &["-v"]].concat()));
    assert!(text.contains("experts in") && text.contains("RPC0"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("devices: ") && line.contains("exchanged")), "{text}");
}

/// A prompt that one graph of as many tokens as decoding may have computes, and the last layer of one,
/// which computes a single token: neither is decoding.
#[test]
fn pairs_are_counted_by_what_their_pass_is_for() {
    let server = RpcServer::start(ByteSize::mib(256)).unwrap();
    let bundled = bundled();
    for (prompt, how) in [("The water goes", "measured"), (PROMPT, "measured"), (PROMPT, "ubatch 3")] {
        for generated in [1, 5] {
            let n = generated.to_string();
            let mut with =
                vec!["run", bundled.to_str().unwrap(), "-p", prompt, "-n", &n, "--temp", "0", "--json"];
            with.extend(STREAMED);
            with.extend(["--rpc", server.endpoint(), "--hot-cache", "2MiB", "--hot-lanes", "always"]);
            with.extend(["--ignore-eos", "--draft", "off"]);
            if how == "ubatch 3" {
                with.extend(["--ubatch", "3"]);
            }
            let run = json(&common::run(&with));
            let hot = &run["hot_experts"];
            let sum = |keys: [&str; 3]| keys.map(|key| hot[key].as_u64().unwrap()).iter().sum::<u64>();
            let tokens = run["prompt_tokens"].as_u64().unwrap();
            let decoded = run["timings"]["decode_passes"].as_u64().unwrap();
            assert_eq!(decoded, generated - 1);
            // Six layers, of which a token uses four experts.
            assert_eq!(sum(["hot", "sent", "cold"]), decoded * 6 * 4, "{prompt}, {how}, {n}: {hot:#}");
            // The last layer of a prompt computes one token.
            let prefill = tokens * 5 * 4 + 4;
            assert_eq!(sum(["prefill_hot", "prefill_sent", "bypassed"]), prefill, "{prompt}, {how}: {hot:#}");
        }
    }
}

#[test]
fn what_earlier_runs_used_is_there_from_the_start() {
    let cache = TempDir::new().unwrap();
    let server = RpcServer::start(ByteSize::mib(256)).unwrap();
    let with =
        ["--rpc", server.endpoint(), "--hot-cache", "2MiB", "--hot-update", "off", "--hot-lanes", "always"];
    let runs: Vec<Value> = (0..2)
        .map(|_| {
            let bundled = bundled();
            let mut command = common::terrace();
            command.env("XDG_CACHE_HOME", cache.path());
            command.args(["run", bundled.to_str().unwrap(), "-p", PROMPT, "-n", "24"]);
            command.args(["--temp", "0", "--json", "--warm-start", "on"]).args(STREAMED).args(with);
            json(&command.output().unwrap())
        })
        .collect();
    assert_eq!(runs[0]["tokens"], runs[1]["tokens"]);
    // Nothing is exchanged, and there are no statistics for the first run.
    assert_eq!(runs[0]["hot_experts"]["hot"], 0);
    assert!(runs[1]["hot_experts"]["hot"].as_u64().unwrap() > 0, "{:#}", runs[1]["hot_experts"]);
    assert!(runs[1]["hot_experts"]["filled"].as_u64().unwrap() > 0);
}

/// Dense weights and the hottest experts on the device, the others streamed: a plan with hot lanes.
#[test]
fn a_plan_with_copies_is_followed() {
    let dir = TempDir::new().unwrap();
    let server = RpcServer::start(ByteSize::mib(256)).unwrap();
    let golden = report(&["--stock"])["tokens"].clone();
    let bundled = bundled();
    let made = run(["plan", bundled.to_str().unwrap(), "--ram-budget", "6MiB", "--json"]);
    let mut plan = json(&made);
    for layer in plan["layers"].as_array_mut().unwrap() {
        layer["home"] = "RPC0".into();
        if !layer["experts"].is_null() {
            layer["experts"]["on_device"] = 5.into();
        }
    }
    let path = dir.path().join("plan.json");
    fs::write(&path, plan.to_string()).unwrap();
    let with = ["--rpc", server.endpoint(), "--plan", path.to_str().unwrap(), "--hot-update", "512KiB"];
    let run = report(&with);
    assert_eq!(run["tokens"], golden);
    assert!(run["hot_experts"]["hot"].as_u64().unwrap() > 0, "{run:#}");
    let layers = run["hot_experts"]["layers"].as_array().unwrap();
    assert!(layers.len() == 6 && layers.iter().all(|layer| layer["slots"] == 5), "{layers:?}");
    assert_eq!(run["plan"]["hot"]["devices"][0]["slots"], 30);
    let placed = run["plan"]["placement"]["layers"].as_array().unwrap();
    assert!(placed.iter().all(|layer| layer["home"] == "RPC0"), "{placed:?}");
    let text = stderr(&generate(&[&with[..], &["--hot-cache", "off"]].concat()));
    assert!(text.contains("devices do not hold the expert copies of the plan: switched off"), "{text}");
}

/// The options of another hot cache: each layer's experts are on both devices, which have different
/// sizes.
#[test]
fn each_layer_is_on_several_devices() {
    let servers = [(); 2].map(|()| RpcServer::start(ByteSize::mib(64)).unwrap());
    let golden = report(&["--stock"])["tokens"].clone();
    let mut with: Vec<&str> = servers.iter().flat_map(|server| ["--rpc", server.endpoint()]).collect();
    with.extend(["--moe-hot-cache-device", "RPC0", "--moe-hot-cache-max-mib", "4"]);
    with.extend(["--moe-hot-cache-second-device", "RPC1", "--moe-hot-cache-second-max-mib", "2"]);
    with.extend(["--hot-update", "512KiB", "--warm-start", "off"]);
    for strategy in ["hot-even", "warm"] {
        let options = [&STREAMED[..], &with, &["--moe-hot-cache-device-strategy", strategy]].concat();
        let run = report(&options);
        assert_eq!(run["tokens"], golden);
        let hot = &run["hot_experts"];
        assert!(hot["hot"].as_u64().unwrap() > 0 && hot["cold"].as_u64().unwrap() > 0, "{hot:#}");
        assert!(hot["memory"].as_u64().unwrap() <= 6 << 20, "{hot:#}");
        for layer in hot["layers"].as_array().unwrap() {
            assert_eq!(layer["device"], "RPC0 + RPC1");
            let slots = |nth: usize| layer["on"][nth]["slots"].as_u64().unwrap();
            assert!(slots(0) > slots(1) && slots(1) > 0, "{layer:#}");
            assert_eq!(slots(0) + slots(1), layer["slots"].as_u64().unwrap());
        }
        let names = |list: &Value| -> Vec<String> {
            let list = list.as_array().unwrap().iter();
            list.map(|item| item["device"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(
            (names(&hot["lanes"]), names(&run["plan"]["hot"]["devices"])),
            (vec!["RPC0".to_owned(), "RPC1".to_owned()], vec!["RPC0".to_owned(), "RPC1".to_owned()])
        );
        // What `terrace plan` says of each layer is what the run has.
        let planned = run["plan"]["placement"]["hot"].as_array().unwrap();
        assert_eq!(planned.len(), 2 * hot["layers"].as_array().unwrap().len(), "{planned:#?}");
    }
}

/// Starts a long generation, ends the server at the first words, and waits for the rest.
fn lose(server: RpcServer, with: &[&str]) -> (String, Output) {
    let bundled = bundled();
    let mut command = common::terrace();
    command.args(["run", bundled.to_str().unwrap(), "-p", PROMPT, "-n", "300", "--temp", "0"]);
    command.args(["--rpc", server.endpoint()]).args(with);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    drop(server);
    let rest = child.wait_with_output().unwrap();
    (String::from_utf8_lossy(&[&first[..], &rest.stdout].concat()).into_owned(), rest)
}

#[test]
fn a_server_of_copies_that_ends_costs_no_token() {
    let server = RpcServer::start(ByteSize::mib(64)).unwrap();
    let plain = {
        let bundled = bundled();
        let fixed = ["run", bundled.to_str().unwrap(), "-p", PROMPT, "-n", "300", "--temp", "0"];
        run(fixed.iter().chain(&STREAMED))
    };
    let with = ["--hot-cache", "8MiB", "--hot-update", "512KiB", "--warm-start", "off"];
    let (text, output) = lose(server, &[&STREAMED[..], &with].concat());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text, String::from_utf8_lossy(&plain.stdout));
    let said = stderr(&output);
    assert_eq!(said.matches("from now on the CPU computes").count(), 1, "{said}");
}

#[test]
fn a_server_of_weights_that_ends_is_one_line_and_a_hint() {
    // All layers, and half of them.
    for layers in ["99", "3"] {
        let server = RpcServer::start(ByteSize::mib(256)).unwrap();
        let (_, output) = lose(server, &["-ngl", layers]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = stderr(&output);
        assert_eq!(said.matches("error: ").count(), 1, "{said}");
        assert!(
            said.contains("error: RPC server 127.0.0.1:") && said.contains("hint: an RPC server ended"),
            "{said}"
        );
    }
}

/// Without any option, a device with room for some experts gets them.
#[test]
fn runs_do_what_is_planned() {
    let server = RpcServer::start(ByteSize::mib(16)).unwrap();
    let golden = report(&["--stock"])["tokens"].clone();
    let run = report(&["--rpc", server.endpoint(), "--ram-budget", "6MiB", "--ctx", "256"]);
    assert_eq!(run["tokens"], golden);
    let summary = run["plan"]["placement"]["summary"].as_str().unwrap();
    assert!(summary.contains("copies of experts on RPC0"), "{:#}", run["plan"]);
    let hot = &run["hot_experts"];
    assert!(hot["hot"].as_u64().unwrap() > 0 && hot["cold"].as_u64().unwrap() > 0, "{hot:#}");
}

#[test]
fn why_there_are_none_is_said() {
    let text = stderr(&generate(&["--ram-budget", "6MiB", "--hot-cache", "2MiB"]));
    assert!(text.contains("--hot-cache has no effect: no device has memory"), "{text}");
    let text = stderr(&generate(&["--hot-cache", "2MiB"]));
    assert!(text.contains("--hot-cache has no effect: no device has memory"), "{text}");
    let text = failure(&generate(&["--hot-cache", "much"]), 2);
    assert!(text.contains("--hot-cache"), "{text}");
    let server = RpcServer::start(ByteSize::mib(64)).unwrap();
    let with = [&STREAMED[..], &["--rpc", server.endpoint(), "--hot-split", "even"]].concat();
    let text = stderr(&generate(&with));
    assert!(text.contains("--hot-split has no effect without a size for --hot-cache"), "{text}");
    let text = stderr(&generate(&[&with[..], &["--hot-cache", "2MiB"]].concat()));
    assert!(text.contains("--hot-split has no effect: RPC0 is the only device"), "{text}");
    // Slices of copies have been removed; what is there instead is said.
    let output = generate(&["--hot-cache", "2MiB", "--hot-split", "on"]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("slices of copies have been removed"), "{text}");
    assert!(text.contains("use `even` instead of `on`"), "{text}");
}

/// A model that fits: all experts in RAM, dense weights and copies of the hottest on the device.
#[test]
fn experts_in_ram_have_copies_beside_dense_layers() {
    let server = RpcServer::start(ByteSize::mib(64)).unwrap();
    let golden = report(&["--stock"])["tokens"].clone();
    let on_device = ["--rpc", server.endpoint(), "-ngl", "99", "--ctx", "256", "--warm-start", "off"];
    let copies = ["--hot-cache", "max", "--hot-update", "1MiB"];
    for moe in [&["--cpu-moe"][..], &["-ncmoe", "99"], &[]] {
        let run = report(&[&on_device[..], &copies, moe].concat());
        assert_eq!(run["tokens"], golden, "{moe:?}");
        let hot = &run["hot_experts"];
        let count = |key: &str| hot[key].as_u64().unwrap();
        assert!(count("hot") > 0 && count("filled") > 0 && count("read_bytes") == 0, "{hot:#}");
        let layers = run["plan"]["placement"]["layers"].as_array().unwrap();
        let dense = |layer: &Value| layer["home"] == "RPC0" && layer["experts"]["on_device"] != 32;
        assert!(layers.iter().all(dense), "{layers:?}");
    }
    // Without copies, experts are in RAM and computed there.
    let run = report(&[&on_device[..], &["--cpu-moe"]].concat());
    assert_eq!(run["tokens"], golden);
    assert!(run["hot_experts"].is_null(), "{:#}", run["hot_experts"]);
    let whole = |run: &Value| run["plan"]["placement"]["on_devices"].as_u64().unwrap();
    assert!(whole(&run) < whole(&report(&on_device)), "{run:#}");
}

/// A layer of this model takes the CPU far less than the round trip to another process.
#[test]
fn a_lane_that_does_not_pay_is_skipped() {
    let server = RpcServer::start(ByteSize::mib(64)).unwrap();
    let bundled = bundled();
    let fixed = ["run", bundled.to_str().unwrap(), "-p", PROMPT, "-n", "60", "--temp", "0", "--json"];
    let of = |more: &[&str]| json(&run(fixed.iter().chain(more)));
    let golden = of(&["--stock"])["tokens"].clone();
    let with = ["--rpc", server.endpoint(), "-ngl", "0", "--hot-cache", "max", "--hot-update", "4MiB"];
    let auto = of(&[&with[..], &["--warm-start", "off"]].concat());
    let always = of(&[&with[..], &["--warm-start", "off", "--hot-lanes", "always"]].concat());
    assert_eq!((&auto["tokens"], &always["tokens"]), (&golden, &golden));
    let sum = |run: &Value, key: &str| -> f64 {
        run["hot_experts"]["layers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|layer| layer[key].as_f64().unwrap())
            .sum()
    };
    assert_eq!(sum(&always, "skipped"), 0.0);
    assert!(sum(&auto, "skipped") > 0.0 && sum(&auto, "hot") > 0.0, "{:#}", auto["hot_experts"]);
    for layer in auto["hot_experts"]["layers"].as_array().unwrap() {
        assert!(
            layer["round_trip_us"].as_f64().unwrap() > 0.0 && layer["cpu_pair_us"].as_f64().unwrap() > 0.0,
            "{layer}"
        );
    }
}

/// Slots follow what earlier runs used: every mode covers tokens alike, within the same memory.
#[test]
fn slots_are_divided_by_worth() {
    let cache = TempDir::new().unwrap();
    let server = RpcServer::start(ByteSize::mib(64)).unwrap();
    let bundled = bundled();
    let of = |mode: &str| {
        let mut command = common::terrace();
        command.env("XDG_CACHE_HOME", cache.path());
        command.args(["run", bundled.to_str().unwrap(), "-p", PROMPT, "-n", "24", "--temp", "0", "--json"]);
        command.args(["--warm-start", "on", "--rpc", server.endpoint(), "-ngl", "0", "--hot-update", "off"]);
        command.args(["--hot-cache", "2MiB", "--hot-lanes", "always", "--hot-weighting", mode]);
        json(&command.output().unwrap())
    };
    let slots = |run: &Value| -> Vec<u64> {
        let layers = run["hot_experts"]["layers"].as_array().unwrap();
        layers.iter().map(|layer| layer["slots"].as_u64().unwrap()).collect()
    };
    // There are no statistics for the first run.
    let first = of("uses");
    let even = of("even");
    assert_eq!(slots(&first), slots(&even));
    for mode in ["uses", "flat", "pressure", "smooth-pressure", "time", "balanced"] {
        let run = of(mode);
        assert_eq!(run["tokens"], first["tokens"], "{mode}");
        let (got, expected) = (slots(&run), slots(&even));
        assert_eq!(got.iter().sum::<u64>(), expected.iter().sum::<u64>(), "{mode}");
        assert!(run["hot_experts"]["hot"].as_u64().unwrap() > 0, "{mode}");
    }
}

#[test]
fn unknown_devices_are_an_error_that_lists_those_that_exist() {
    let server = RpcServer::start(ByteSize::mib(64)).unwrap();
    for option in [["--device", "GPU7"], ["--hot-cache", "GPU7=1MiB"], ["--vram-budget", "GPU7=1MiB"]] {
        let text = failure(&generate(&[&["--rpc", server.endpoint()][..], &option].concat()), 1);
        assert!(text.contains("`GPU7`") && text.contains("RPC0"), "{text}");
    }
}

/// Devices of different sizes, one of them switched off or left out.
#[test]
fn devices_get_what_is_said_of_each() {
    let servers = [64, 64].map(|mebibytes| RpcServer::start(ByteSize::mib(mebibytes)).unwrap());
    let rpc: Vec<&str> = servers.iter().flat_map(|server| ["--rpc", server.endpoint()]).collect();
    let of = |more: &[&str]| {
        let run =
            report(&[&rpc[..], &["-ngl", "0", "--warm-start", "off", "--hot-update", "1MiB"], more].concat());
        let layers = run["hot_experts"]["layers"].as_array().unwrap().clone();
        let on = |name: &str| layers.iter().filter(|layer| layer["device"] == name).count();
        (run["tokens"].clone(), on("RPC0"), on("RPC1"))
    };
    let golden = report(&["--stock"])["tokens"].clone();
    let sizes = ["--hot-cache", "RPC0=2MiB", "--hot-cache", "RPC1=4MiB"];
    assert_eq!(of(&sizes), (golden.clone(), 2, 4), "in proportion to their memory");
    assert_eq!(of(&["--hot-cache", "2MiB,RPC1=off"]), (golden.clone(), 6, 0));
    assert_eq!(of(&["--hot-cache", "2MiB", "--device", "RPC1"]), (golden, 0, 6));
}

#[test]
fn a_small_device_gets_what_it_has_room_for() {
    let server = RpcServer::start(ByteSize::mib(3)).unwrap();
    let with = ["--rpc", server.endpoint(), "--hot-cache", "64MiB"];
    let output = generate(&[&STREAMED[..], &with, &["--json"]].concat());
    let text = stderr(&output);
    assert!(text.contains("RPC0 has room for") && text.contains("less than the requested 64 MiB"), "{text}");
    let hot = json(&output)["hot_experts"].clone();
    assert!(hot["memory"].as_u64().unwrap() <= 3 << 20 && hot["hot"].as_u64().unwrap() > 0, "{hot:#}");
}

/// A device that `--device` leaves out, but another option names, is an error by name.
#[test]
fn devices_that_are_left_out_are_not_named_in_vain() {
    let servers: Vec<RpcServer> = (0..2).map(|_| RpcServer::start(ByteSize::mib(64)).unwrap()).collect();
    let mut with: Vec<&str> = servers.iter().flat_map(|server| ["--rpc", server.endpoint()]).collect();
    with.extend(["--device", "RPC0"]);
    for named in
        [&["--hot-cache", "RPC1=2MiB"][..], &["--vram-budget", "RPC1=2MiB"], &["--vram-reserve", "RPC1=2MiB"]]
    {
        let error = failure(&generate(&[&STREAMED[..], &with, named].concat()), 1);
        assert!(
            error.contains("device RPC1 is not among those that may be used: RPC0"),
            "{named:?}: {error}"
        );
    }
    // To switch it off there asks for nothing.
    let off = [&STREAMED[..], &with, &["--hot-cache", "RPC0=2MiB,RPC1=off"]].concat();
    let run = report(&off);
    assert_eq!(run["plan"]["hot"]["devices"][0]["device"], "RPC0");
    let one = [&STREAMED[..], &with, &["--hot-cache", "2MiB", "--hot-split", "even"]].concat();
    let text = stderr(&generate(&one));
    assert!(text.contains("--hot-split has no effect: RPC0 is the only device that may be used"), "{text}");
}

/// As in another hot cache, a lane's device holds copies without being one of `--device`, and no layers.
#[test]
fn devices_of_lanes_join_for_copies_alone() {
    let servers: Vec<RpcServer> = (0..2).map(|_| RpcServer::start(ByteSize::mib(64)).unwrap()).collect();
    let golden = report(&["--stock"])["tokens"].clone();
    let mut with: Vec<&str> = servers.iter().flat_map(|server| ["--rpc", server.endpoint()]).collect();
    with.extend(["--device", "RPC0", "--n-gpu-layers", "99", "--cpu-moe", "--warm-start", "off"]);
    for strategy in ["hot-even", "even-split", "warm"] {
        let lanes = [
            "--moe-hot-cache-device",
            "RPC0",
            "--moe-hot-cache-max-mib",
            "3",
            "--moe-hot-cache-second-device",
            "RPC1",
            "--moe-hot-cache-second-max-mib",
            "4",
            "--moe-hot-cache-device-strategy",
            strategy,
        ];
        let run = report(&[&with[..], &lanes].concat());
        assert_eq!(run["tokens"].as_array().unwrap().len(), golden.as_array().unwrap().len());
        let devices = run["plan"]["hot"]["devices"].as_array().unwrap();
        let mut named: Vec<&str> = devices.iter().map(|device| device["device"].as_str().unwrap()).collect();
        named.sort_unstable();
        assert_eq!(named, ["RPC0", "RPC1"], "{strategy}: {devices:#?}");
        for device in devices {
            let most = if device["device"] == "RPC0" { 3 << 20 } else { 4 << 20 };
            let bytes = device["bytes"].as_u64().unwrap();
            assert!(bytes > 0 && bytes <= most, "{strategy}: {device:#}");
        }
        let layers = run["plan"]["placement"]["layers"].as_array().unwrap();
        assert!(layers.iter().any(|layer| layer["home"] == "RPC0"), "{layers:#?}");
        assert!(layers.iter().all(|layer| layer["home"] != "RPC1"), "{strategy}: {layers:#?}");
        let hot = &run["hot_experts"];
        assert!(hot["hot"].as_u64().unwrap() > 0, "{hot:#}");
    }
}

/// A reserve bounds copies and nothing else: layers stay where they were, and a start is never refused.
#[test]
fn a_reserve_makes_fewer_copies_or_none() {
    let server = RpcServer::start(ByteSize::mib(64)).unwrap();
    let with = ["--rpc", server.endpoint(), "-ngl", "99", "--cpu-moe", "--moe-hot-cache-max-mib", "-1"];
    let homes = |run: &Value| -> Vec<Value> {
        let layers = run["plan"]["placement"]["layers"].as_array().unwrap();
        layers.iter().map(|layer| layer["home"].clone()).collect()
    };
    let of = |reserve: &str| report(&[&with[..], &["--moe-hot-cache-auto-reserve-mib", reserve]].concat());
    let bytes = |run: &Value| run["plan"]["hot"]["devices"][0]["bytes"].as_u64().unwrap_or(0);
    let (little, much, all) = (of("1"), of("30"), of("100000"));
    assert!(bytes(&little) > bytes(&much) && bytes(&much) > 0, "{} and {}", bytes(&little), bytes(&much));
    assert_eq!(bytes(&all), 0, "{:#}", all["plan"]["hot"]);
    assert_eq!((homes(&little), homes(&much)), (homes(&much), homes(&all)));
    assert!(homes(&all).iter().any(|home| home == "RPC0"), "{:?}", homes(&all));
    let ours = report(&[&with[..5], &["--hot-cache", "max-30MiB"]].concat());
    assert_eq!(bytes(&ours), bytes(&much));
}

/// Both servers end at once, in the middle of an answer: each is named, whichever was noticed first.
#[test]
fn servers_that_end_together_are_all_named() {
    let bundled = bundled();
    for split in ["off", "even", "warm"] {
        let servers: Vec<RpcServer> = (0..2).map(|_| RpcServer::start(ByteSize::mib(64)).unwrap()).collect();
        let mut command = common::terrace();
        command.args(["run", bundled.to_str().unwrap(), "-p", PROMPT, "-n", "300", "--temp", "0"]);
        command.args(STREAMED).args(servers.iter().flat_map(|server| ["--rpc", server.endpoint()]));
        command.args(["--hot-cache", "4MiB", "--hot-lanes", "always", "--hot-split", split]);
        command.args(["--ignore-eos"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        drop(servers);
        let output = child.wait_with_output().unwrap();
        let said = stderr(&output);
        assert!(output.status.success(), "{split}: {said}");
        for device in ["RPC0", "RPC1"] {
            let lost = format!("device {device} is lost: an RPC server has ended");
            assert_eq!(said.matches(&lost).count(), 1, "{split}, {device}: {said}");
        }
    }
}
