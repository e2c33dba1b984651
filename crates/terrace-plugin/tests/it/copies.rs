//! Copies of experts on a device of the program: the same logits, bit for bit, within the memory that was
//! asked for, which is given back.

use crate::control::{ask, folder, listen_in, stats};
use crate::host::{bundled, load, places, plug_in, set, trace};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use terrace_ggml::devices::rpc::add_rpc_server;
use terrace_ggml::devices::{BufferTypeHandle, DeviceHandle};
use terrace_ggml::llama::{LoadParams, Model};
use terrace_ggml::testing::stand_in::{reported, stand_in, taken};
use terrace_model::ByteSize;
use terrace_model::learn::{ExpertUses, LearnFile, LearnLayer};
use terrace_plan::model::{ExpertGroup, expert_groups};
use terrace_testkit::rpc::RpcServer;
use terrace_testkit::{Arch, Spec, each_moe_architecture, write};

/// Memory for copies of the bundled model's experts.
const COPIES: ByteSize = ByteSize::mib(6);

/// Adds a device, and asks for copies on it that are used whether or not that pays.
fn with_device(copies: ByteSize) -> DeviceHandle {
    terrace_testkit::needs_own_process();
    set("TERRACE_HOT_CACHE", &copies.bytes().to_string());
    set("TERRACE_HOT_LANES", "always");
    stand_in(ByteSize::gib(1))
}

/// What is printed on stderr meanwhile.
fn told<R>(during: impl FnOnce() -> R) -> (R, String) {
    let mut file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let exchange = |to: &File| {
        // SAFETY: descriptors of this process.
        unsafe {
            let before = libc::dup(2);
            libc::dup2(to.as_raw_fd(), 2);
            before
        }
    };
    let before = exchange(&file);
    let result = during();
    // SAFETY: as above; the copy is closed once.
    unsafe {
        libc::dup2(before, 2);
        libc::close(before);
    }
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    (result, text)
}

/// A load that puts all layers on the device, and the experts as `overrides` say.
fn load_on_device(path: &Path, overrides: Vec<(String, BufferTypeHandle)>) -> Arc<Model> {
    let params = LoadParams { spread: Some(99), overrides, ..LoadParams::default() };
    Arc::new(Model::load(path, &params).unwrap())
}

/// As `--cpu-moe` has it.
fn experts_on_the_cpu() -> Vec<(String, BufferTypeHandle)> {
    vec![("exps".into(), BufferTypeHandle::cpu())]
}

#[test]
fn copies_compute_the_same_and_their_memory_is_given_back() {
    let dir = folder();
    let socket = listen_in(&dir);
    set("TERRACE_RAM_BUDGET", "3MiB");
    set("TERRACE_TIMELINE", "timeline.json");
    set("TERRACE_STATS", "stats.json");
    set("TERRACE_HOT_UPDATE", "1GiB");
    let device = with_device(COPIES);
    let expected = trace(&load(&bundled(), false));
    plug_in();
    let before = taken();
    let (model, text) = told(|| load(&bundled(), false));
    assert!(text.contains(&format!("layers on {}", device.name())), "{text}");
    assert!(places(&model).contains("TERRACE"), "{:?}", places(&model));
    let took = taken().bytes() - before.bytes();
    assert!(took > COPIES.bytes() / 2 && took <= COPIES.bytes(), "{took}");
    for round in 0..2 {
        assert!(trace(&model) == expected, "other logits in round {round}");
    }
    let copies = stats(&socket)["models"][0]["hot_experts"].take();
    for count in ["hot", "cold", "prefill_hot", "filled", "exchanged"] {
        assert!(copies[count].as_u64() > Some(0), "{count}: {copies}");
    }
    assert!(copies["memory"].as_u64().unwrap() <= took, "{copies}");
    let layers = copies["layers"].as_array().unwrap();
    assert!(layers.len() == 6 && layers.iter().all(|layer| layer["problem"].is_null()), "{copies}");

    drop(model);
    assert_eq!(taken(), before, "memory was not given back");
    let read = |name: &str| -> Value { serde_json::from_slice(&std::fs::read(name).unwrap()).unwrap() };
    assert_eq!(read("stats.json")["freed"][0]["hot_experts"]["hot"], copies["hot"]);
    let timeline = read("timeline.json").to_string();
    assert!(timeline.contains("lane GPU0") && timeline.contains("kernel"), "no track of the device");
}

/// The program divides layers by what is free: without the memory for copies.
#[test]
fn memory_is_taken_before_the_program_measures_what_is_free() {
    set("TERRACE_RAM_BUDGET", "3MiB");
    let device = with_device(COPIES);
    let expected = trace(&load_on_device(&bundled(), experts_on_the_cpu()));
    plug_in();
    let (all, earlier) = (device.memory().0, reported().len());
    let model = load_on_device(&bundled(), experts_on_the_cpu());
    let asked = reported();
    let measured = asked[earlier..].iter().filter(|&&free| free == all - COPIES).count();
    assert!(measured > 0, "{all} without {COPIES}: {asked:?}");
    let places = places(&model);
    assert!(places.contains("TERRACE") && places.contains("GPU0"), "{places:?}");
    assert!(trace(&model) == expected, "other logits");
    drop(model);
    assert_eq!(device.memory().0, all);
}

/// The device is ggml's RPC server on this machine, which computes with the CPU's kernels.
#[test]
fn copies_on_a_worker_compute_the_same_and_its_memory_is_given_back() {
    let server = RpcServer::start(ByteSize::mib(64)).unwrap();
    set("TERRACE_RAM_BUDGET", "3MiB");
    set("TERRACE_HOT_LANES", "always");
    set("TERRACE_HOT_UPDATE", "1GiB");
    let dir = folder();
    let socket = listen_in(&dir);
    let expected = trace(&load(&bundled(), false));
    let device = add_rpc_server(server.endpoint()).unwrap()[0];
    set("TERRACE_HOT_CACHE", &format!("{}={}", device.name(), COPIES.bytes()));
    plug_in();
    let free = device.memory().0;
    let model = load(&bundled(), false);
    assert!(device.memory().0 < free - ByteSize(COPIES.bytes() / 2));
    assert!(trace(&model) == expected && trace(&model) == expected, "other logits");
    let copies = stats(&socket)["models"][0]["hot_experts"].take();
    assert!(copies["hot"].as_u64() > Some(0) && copies["exchanged"].as_u64() > Some(0), "{copies}");
    drop(model);
    assert_eq!(device.memory().0, free);
}

/// Each of two workers has copies of every layer's experts.
#[test]
fn two_devices_share_the_copies_of_each_layer() {
    let text = for_split("even", 2);
    assert!(!text.contains("no effect"), "{text}");
}

#[test]
fn a_split_needs_several_devices() {
    let text = for_split("warm", 1);
    assert!(text.contains("TERRACE_HOT_SPLIT=warm has no effect: only one device has copies"), "{text}");
}

/// Loads the model with copies on workers, and compares what it computes. Returns what was said.
fn for_split(split: &str, workers: usize) -> String {
    let servers: Vec<RpcServer> =
        (0..workers).map(|_| RpcServer::start(ByteSize::mib(64)).unwrap()).collect();
    set("TERRACE_RAM_BUDGET", "3MiB");
    set("TERRACE_HOT_LANES", "always");
    set("TERRACE_HOT_UPDATE", "1GiB");
    set("TERRACE_HOT_SPLIT", split);
    let dir = folder();
    let socket = listen_in(&dir);
    let expected = trace(&load(&bundled(), false));
    let name = |server: &RpcServer| add_rpc_server(server.endpoint()).unwrap()[0].name();
    let names: Vec<String> = servers.iter().map(name).collect();
    let sizes: Vec<String> = names.iter().map(|name| format!("{name}={}", COPIES.bytes())).collect();
    set("TERRACE_HOT_CACHE", &sizes.join(","));
    plug_in();
    let (model, text) = told(|| load(&bundled(), false));
    for round in 0..2 {
        assert!(trace(&model) == expected, "other logits in round {round}: {text}");
    }
    let copies = stats(&socket)["models"][0]["hot_experts"].take();
    assert!(copies["hot"].as_u64() > Some(0), "{copies}");
    for layer in copies["layers"].as_array().unwrap() {
        assert!(split != "even" || layer["device"] == names.join(" + "), "{copies}");
        let on = layer["on"].as_array().map_or(&[][..], |on| on);
        assert!(
            split != "even" || on.len() == 2 && on.iter().all(|on| on["slots"].as_u64() > Some(0)),
            "{copies}"
        );
    }
    text
}

/// Layers get slots by the uses that a learn file counts, and begin with the experts that it counts
/// most; a file of another model has no effect.
#[test]
fn a_learn_file_decides_which_copies_there_are_at_first() {
    let dir = folder();
    let socket = listen_in(&dir);
    set("TERRACE_RAM_BUDGET", "3MiB");
    set("TERRACE_HOT_UPDATE", "off");
    set("TERRACE_HOT_WEIGHTING", "uses");
    set("TERRACE_LEARNED", "learned.json");
    with_device(COPIES);
    let expected = trace(&load(&bundled(), false));
    plug_in();
    let file = terrace_ggml::gguf::read(&bundled()).unwrap();
    // The first layer uses many experts alike, the others only one.
    let layer = |(index, group): (usize, &ExpertGroup)| LearnLayer {
        layer: group.layer.0,
        experts: (0..if index == 0 { 8 } else { 1 })
            .map(|expert| ExpertUses { expert, hot: 0, cold: 100 })
            .collect(),
        ..LearnLayer::default()
    };
    let layers = expert_groups(&file).iter().enumerate().map(layer).collect();
    let learned = LearnFile { layers, ..LearnFile::default() };
    std::fs::write("learned.json", learned.to_text()).unwrap();
    let (model, text) = told(|| load(&bundled(), false));
    assert!(!text.contains("TERRACE_LEARNED"), "{text}");
    let counts = |what: &str| -> Vec<u64> {
        let copies = stats(&socket)["models"][0]["hot_experts"].take();
        copies["layers"].as_array().unwrap().iter().map(|layer| layer[what].as_u64().unwrap()).collect()
    };
    let (slots, held) = (counts("slots"), counts("held"));
    assert!(
        slots[0] >= 8 && slots[1..].iter().all(|&slots| slots < slots_evenly(&counts("slots"))),
        "{slots:?}"
    );
    assert_eq!((held[0], held[1]), (8, 1), "{held:?}");
    assert!(trace(&model) == expected, "other logits");
    drop(model);

    let other = LearnFile { model: Some("another".into()), ..learned };
    std::fs::write("learned.json", other.to_text()).unwrap();
    let (model, text) = told(|| load(&bundled(), false));
    assert!(text.contains("TERRACE_LEARNED=learned.json is not used for"), "{text}");
    assert_eq!(counts("held").iter().sum::<u64>(), 0);
    assert!(trace(&model) == expected, "other logits");
}

/// Slots of each layer if all have the same number.
fn slots_evenly(slots: &[u64]) -> u64 {
    slots.iter().sum::<u64>() / slots.len() as u64 + 1
}

#[test]
fn what_cannot_be_is_told_and_takes_nothing() {
    set("TERRACE_RAM_BUDGET", "3MiB");
    stand_in(ByteSize::gib(1));
    set("TERRACE_HOT_CACHE", "GPU7=1MiB,GPU0=max");
    let expected = trace(&load(&bundled(), false));
    plug_in();
    let (model, text) = told(|| load(&bundled(), false));
    for line in [
        "no expert copies on GPU7: there is no such device",
        "no expert copies on GPU0: the program may use what is free there",
    ] {
        assert_eq!(text.matches(line).count(), 1, "{text}");
    }
    assert_eq!(taken(), ByteSize::ZERO);
    assert!(trace(&model) == expected);
}

#[test]
fn a_model_that_fits_leaves_the_device_to_the_program() {
    set("TERRACE_RAM_BUDGET", "1GiB");
    with_device(COPIES);
    plug_in();
    let (model, text) = told(|| load(&bundled(), false));
    assert!(text.contains("its experts are not streamed"), "{text}");
    assert_eq!(taken(), ByteSize::ZERO);
    drop(model);
}

#[test]
fn what_the_program_makes_no_use_of_is_given_back_with_the_first_graph() {
    set("TERRACE_RAM_BUDGET", "3MiB");
    with_device(COPIES);
    let whole = |model: &Arc<Model>| (trace(model), taken());
    let expected = whole(&load_on_device(&bundled(), Vec::new()));
    plug_in();
    let model = load_on_device(&bundled(), Vec::new());
    assert!(!places(&model).contains("TERRACE"), "{:?}", places(&model));
    let (found, text) = told(|| whole(&model));
    assert!(found == expected, "{} taken, not {}: {text}", found.1, expected.1);
    assert!(text.contains("the program placed all experts itself"), "{text}");
}

#[test]
fn one_model_at_a_time_has_copies() {
    set("TERRACE_RAM_BUDGET", "12MiB");
    with_device(COPIES);
    let expected = trace(&load(&bundled(), false));
    plug_in();
    let first = load(&bundled(), false);
    let took = taken();
    let (second, text) = told(|| load(&bundled(), true));
    assert!(text.contains("another model has them"), "{text}");
    assert_eq!(taken(), took);
    assert!(trace(&first) == expected && trace(&second) == expected);
    drop(first);
    assert_eq!(taken(), ByteSize::ZERO);
    let (third, text) = told(|| load(&bundled(), false));
    assert!(text.contains("layers on GPU0") && taken() == took, "{text}");
    assert!(trace(&third) == expected && trace(&second) == expected);
}

#[test]
fn a_learn_file_is_applied_before_the_next_graph() {
    let dir = folder();
    let socket = listen_in(&dir);
    set("TERRACE_RAM_BUDGET", "3MiB");
    set("TERRACE_HOT_UPDATE", "off");
    with_device(COPIES);
    let expected = trace(&load(&bundled(), false));
    plug_in();
    let model = load(&bundled(), false);
    let file = terrace_ggml::gguf::read(&bundled()).unwrap();
    let uses = |expert| ExpertUses { expert, hot: 0, cold: 9 - u64::from(expert) };
    let layer = |group: &ExpertGroup| LearnLayer {
        layer: group.layer.0,
        experts: (0..2).map(uses).collect(),
        ..LearnLayer::default()
    };
    let layers = expert_groups(&file).iter().map(layer).collect();
    let learned = LearnFile { layers, ..LearnFile::default() };
    let apply = |learned: &LearnFile| {
        let learned: Value = serde_json::from_str(&learned.to_text()).unwrap();
        ask(&socket, &json!({"version": 1, "command": "apply", "learned": learned}))
    };
    let held = || -> u64 {
        let copies = stats(&socket)["models"][0]["hot_experts"].take();
        copies["layers"].as_array().unwrap().iter().map(|layer| layer["held"].as_u64().unwrap()).sum()
    };
    assert_eq!(held(), 0, "nothing is known yet, and nothing is exchanged");
    let answer = apply(&learned)["ok"].take();
    assert_eq!(answer["models"][0]["pending"], true, "the program computes nothing: {answer}");
    assert!(trace(&model) == expected, "other logits");
    assert_eq!(held(), 12);

    // While the program computes, the answer says what was done.
    let computing = std::thread::spawn({
        let model = Arc::clone(&model);
        move || (0..40).map(|_| trace(&model)).collect::<Vec<_>>()
    });
    let more = |layer: LearnLayer| LearnLayer { experts: (1..3).map(uses).collect(), ..layer };
    let other = LearnFile { layers: learned.layers.iter().cloned().map(more).collect(), ..learned.clone() };
    let answer = apply(&other)["ok"].take();
    // There are three slots in each layer.
    assert_eq!(answer["models"][0]["exchanged"], 6, "{answer}");
    assert_eq!(answer["models"][0]["hot_experts"], 18, "{answer}");
    assert!(computing.join().unwrap().iter().all(|logits| *logits == expected), "other logits");

    for (wrong, why) in [
        (LearnFile { model: Some("another".into()), ..learned.clone() }, "made for `another`"),
        (LearnFile::default(), "no uses of experts"),
    ] {
        let error = apply(&wrong)["error"].take();
        assert!(error.as_str().unwrap().contains(why), "{error}");
    }
    assert_eq!(held(), 18);
}

#[test]
fn a_learn_file_needs_copies() {
    let dir = folder();
    let socket = listen_in(&dir);
    set("TERRACE_RAM_BUDGET", "3MiB");
    plug_in();
    let _model = load(&bundled(), false);
    let layer = LearnLayer {
        layer: 0,
        experts: vec![ExpertUses { expert: 1, hot: 0, cold: 2 }],
        ..LearnLayer::default()
    };
    let learned = LearnFile { layers: vec![layer], ..LearnFile::default() };
    let learned: Value = serde_json::from_str(&learned.to_text()).unwrap();
    let answer = ask(&socket, &json!({"version": 1, "command": "apply", "learned": learned}));
    let error = answer["error"].as_str().unwrap();
    assert!(error.ends_with("no device holds copies of its experts"), "{error}");
}

mod every_architecture_is_exact {
    super::each_moe_architecture!(super::check);
}

fn check(arch: Arch) {
    let dir = folder();
    let path = write(&Spec::new(arch), dir.path().join("model.gguf")).unwrap();
    let file = terrace_ggml::gguf::read(&path).unwrap();
    let experts: u64 =
        file.tensors.iter().filter(|t| t.name.contains("_exps.weight")).map(|t| t.extent.len).sum();
    set("TERRACE_STREAM", "experts");
    set("TERRACE_RAM_BUDGET", &(file.size().bytes() - experts / 2).to_string());
    let bundles: u64 = expert_groups(&file).iter().map(|group| group.bundle.bytes()).sum();
    with_device(ByteSize(3 * bundles + (1 << 20)));
    let expected = trace(&load(&path, false));
    plug_in();
    let (model, text) = told(|| load(&path, false));
    assert!(text.contains("layers on GPU0"), "{text}");
    let (same, text) = told(|| trace(&model) == expected && trace(&model) == expected);
    assert!(same, "{arch}: other logits");
    assert!(!text.contains("no expert copies"), "{arch}: {text}");
    assert!(taken() > ByteSize::ZERO);
}
