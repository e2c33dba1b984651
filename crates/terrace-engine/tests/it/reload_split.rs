//! Tensors of which several devices each hold a slice are replaced: tensors that belong together
//! stay cut at the same borders.

use crate::reloading;
use crate::reloading::{dir, from_file, load, original, servers, settle, stays_flat, trace, with, write};
use std::ops::ControlFlow;
use std::path::Path;
use terrace_engine::options::DeviceOptions;
use terrace_engine::{Engine, EngineError, Options, ReloadError, Replacement, Session, Take, Unfit};
use terrace_ggml::llama::Sampling;
use terrace_model::ByteSize;
use terrace_model::SplitMode;
use terrace_plan::Manage;
use terrace_testkit::rpc::RpcServer;
use terrace_testkit::{Arch, Spec, WeightType, thorough};

#[test]
fn swaps_leave_devices_their_memory() {
    let (dir, servers) = (dir(), servers(2, ByteSize::mib(512)));
    let spec = spec(Arch::Qwen3Moe);
    let base = write(&spec, dir.path().join("base.gguf"));
    let mut engine = load(options(&base, &servers));
    // The borders of the block's slices move, and move back.
    let (down, query) = ("blk.1.ffn_down_exps.weight", "blk.1.attn_q.weight");
    let changed = with(&with(&spec, down, WeightType::Q4_K), query, WeightType::Q4_0);
    let donor = write(&changed, dir.path().join("donor.gguf"));
    stays_flat(&mut engine, 2, &[from_file(down, &donor), from_file(query, &donor)], 40);
}

fn options(model: &Path, servers: &[RpcServer]) -> Options {
    let rpc = servers.iter().map(|server| server.endpoint().to_owned()).collect();
    let (device_layers, split_mode) = (Some(4), SplitMode::Tensor);
    Options {
        devices: DeviceOptions {
            rpc,
            n_gpu_layers: device_layers,
            split_mode,
            ..reloading::options(model, Manage::None).devices
        },
        ..reloading::options(model, Manage::None)
    }
}

/// A model wide enough for a slice per device, with borders that depend on the block size: 768 is
/// cut at 384 in blocks of 32 and at 256 in blocks of 256.
fn spec(arch: Arch) -> Spec {
    let ty = WeightType::Q8_0;
    // Few experts: ggml sends slices to a server row by row.
    let (experts, top_k) = if arch.is_moe() { (4, 2) } else { (0, 0) };
    let heads = Spec { heads: 12, kv_heads: 6, embd: 768, experts, top_k, ..Spec::new(arch) };
    Spec { expert_ff: 768, ff: 1536, expert_type: ty, other_type: ty, ..heads }
}

fn check(servers: &[RpcServer], archs: &[Arch]) {
    let (dir, devices) = (dir(), servers.len());
    for &arch in archs {
        let spec = spec(arch);
        let base = write(&spec, dir.path().join(format!("{arch}.gguf")));
        let mut engine = load(options(&base, servers));
        let before = trace(&mut engine);
        let plain = trace(&mut load(reloading::options(&base, Manage::None)));
        assert_eq!(before.tokens, plain.tokens, "{arch}: slices do not add up to the model");
        let (down, up) =
            if arch.is_moe() { ("ffn_down_exps", "ffn_up_exps") } else { ("ffn_down", "ffn_up") };
        let name = |role: &str| format!("blk.1.{role}.weight");
        let donor = |engine: &Engine, changes: &[(&str, WeightType)]| {
            let changed = changes.iter().fold(spec.clone(), |spec, (role, ty)| with(&spec, &name(role), *ty));
            let path = write(&changed, dir.path().join(format!("donor{}.gguf", engine.epoch())));
            let swaps: Vec<Replacement> =
                changes.iter().map(|(role, _)| from_file(&name(role), &path)).collect();
            (path, swaps)
        };
        // Quantising to these IQ types starts with building tables, which takes 10 s each.
        let [two, one] =
            thorough([WeightType::Q3_K, WeightType::Q2_K], [WeightType::IQ2_XS, WeightType::IQ1_M]);
        let cases: [&[(&str, WeightType)]; 6] = [
            &[(down, WeightType::Q4_0)],
            &[(down, WeightType::Q4_K)],
            &[(up, two)],
            &[(up, WeightType::Q6_K), (down, one)],
            &[("attn_q", WeightType::Q4_K)],
            &[("attn_v", WeightType::F16), (down, WeightType::Q6_K)],
        ];
        for case in cases {
            let label = format!("{arch} on {devices}: {case:?}");
            let (path, swaps) = donor(&engine, case);
            let report = engine.swap(&swaps).unwrap();
            assert_eq!(report.swapped.len(), case.len(), "{label}");
            let moves = case.iter().any(|(role, ty)| *role == down && *ty != WeightType::Q4_0);
            assert_eq!(report.resplit > 0, moves, "{label}: {report}");
            let swapped = trace(&mut engine);
            let fresh = trace(&mut load(options(&path, servers)));
            assert!(swapped == fresh, "{label}: differs from a fresh load of the file");
            let back: Vec<Replacement> = case.iter().map(|(role, _)| original(&name(role))).collect();
            let report = engine.swap(&back).unwrap();
            assert_eq!(report.bytes(), ByteSize::ZERO, "{label}");
            assert!(trace(&mut engine) == before, "{label}: not what was loaded");
        }
        // One by one, each on top of the previous.
        let (_, q4) = donor(&engine, &[(up, WeightType::Q4_K)]);
        engine.swap(&q4).unwrap();
        let (path, both) = donor(&engine, &[(up, WeightType::Q4_K), (down, WeightType::Q4_K)]);
        engine.swap(&both[1..]).unwrap();
        assert!(trace(&mut engine) == trace(&mut load(options(&path, servers))), "{arch}: one by one");
        engine.swap(&[original(&name(up))]).unwrap();
        engine.swap(&[original(&name(down))]).unwrap();
        assert!(trace(&mut engine) == before, "{arch}: not what was loaded");
    }
}

#[test]
fn slices_on_two_devices_are_replaced() {
    let servers = servers(2, ByteSize::gib(1));
    check(&servers, &[Arch::Qwen3Moe, Arch::Llama]);
    // A model that cannot be sliced is refused before llama.cpp aborts.
    let dir = dir();
    let narrow = write(&Spec::new(Arch::Qwen3Moe), dir.path().join("narrow.gguf"));
    let refused = Engine::load(options(&narrow, &servers), &mut |_| std::ops::ControlFlow::Continue(()));
    assert!(matches!(refused.map(|_| ()), Err(EngineError::Unfit(Unfit::EmptySlice { .. }))));
}

#[test]
fn slices_on_three_devices_are_replaced() {
    check(&servers(3, ByteSize::gib(1)), &[Arch::Mixtral]);
}

/// A file gets another tensor, or other bytes of the same types, and gets back what it had.
#[test]
fn slices_that_return_with_their_file_are_what_was_loaded() {
    let (dir, servers) = (dir(), servers(2, ByteSize::gib(1)));
    // Matrices of experts are longer than what is compared at once.
    let spec = Spec { experts: 8, layers: 2, ..spec(Arch::Qwen3Moe) };
    let loaded = write(&spec, dir.path().join("loaded.gguf"));
    let base = dir.path().join("base.gguf");
    let replace = |by: &Path| {
        let new = dir.path().join("new.gguf");
        std::fs::copy(by, &new).unwrap();
        settle(&new);
        std::fs::rename(new, &base).unwrap();
    };
    replace(&loaded);
    let mut engine = load(options(&base, &servers));
    let before = trace(&mut engine);
    let other_type = with(&spec, "blk.1.ffn_down_exps.weight", WeightType::Q4_K);
    let other_bytes = Spec { seed: spec.seed + 1, ..spec };
    for (name, other, most) in [("type.gguf", other_type, 1), ("bytes.gguf", other_bytes, usize::MAX)] {
        let other = write(&other, dir.path().join(name));
        replace(&other);
        let report = engine.reload_changed().unwrap();
        assert!((1..=most).contains(&report.swapped.len()), "{name}: {report}");
        assert!(trace(&mut engine) != before, "{name}");
        replace(&loaded);
        let back = engine.reload_changed().unwrap();
        assert_eq!((back.swapped.len(), back.bytes()), (report.swapped.len(), ByteSize::ZERO), "{name}");
        assert!(trace(&mut engine) == before, "{name}: not what was loaded");
    }
}

/// Sets the most address space that this process may have; `None` removes the limit.
fn limit_address_space(most: Option<ByteSize>) {
    let limit = most.map_or("unlimited".into(), |most| most.bytes().to_string());
    let (this, limit) = (std::process::id().to_string(), format!("--as={limit}:"));
    assert!(std::process::Command::new("prlimit").args(["--pid", &this, &limit]).status().unwrap().success());
}

/// Size of this process's address space.
fn address_space() -> ByteSize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    ByteSize::kib(line.trim().trim_end_matches(" kB").parse().unwrap())
}

/// The siblings of a swapped tensor cannot be sliced again, for want of memory: the tensor has been
/// swapped all the same, and nothing is computed before the slices fit.
#[test]
fn siblings_that_are_left_behind_are_told_and_follow_later() {
    let (dir, servers) = (dir(), servers(2, ByteSize::gib(1)));
    let (gate, down) = ("blk.1.ffn_gate_exps.weight", "blk.1.ffn_down_exps.weight");
    let spec = with(&Spec { experts: 8, ..spec(Arch::Qwen3Moe) }, gate, WeightType::F32);
    let base = write(&spec, dir.path().join("base.gguf"));
    let donor = write(&with(&spec, down, WeightType::Q4_K), dir.path().join("donor.gguf"));
    let mut engine = load(options(&base, &servers));
    trace(&mut engine);
    let mut session = engine.session();
    let generate = |engine: &mut Engine, session: &mut Session| {
        let go_on = &mut |_: &[u8]| ControlFlow::Continue(());
        engine.generate(session, &[5, 6, 7], Some(2), &Sampling::greedy(), go_on)
    };
    generate(&mut engine, &mut session).unwrap();
    // Enough for the new tensor, but not for a copy of its sibling.
    limit_address_space(Some(address_space() + ByteSize::mib(12)));
    let error = engine.swap(&[from_file(down, &donor)]);
    limit_address_space(None);
    let error = error.unwrap_err().to_string();
    assert!(!error.contains("nothing was reloaded") && error.contains("1 tensor"), "{error}");
    assert!(error.contains(gate), "{error}");
    assert_eq!(engine.epoch(), 1);
    let error = generate(&mut engine, &mut session).unwrap_err().to_string();
    assert!(error.contains("blk.1."), "{error}");
    let report = engine.reload_changed().unwrap();
    assert!(report.is_empty() && report.resplit > 0, "{report}");
    assert!(trace(&mut engine) == trace(&mut load(options(&donor, &servers))));
}

#[test]
fn a_block_that_a_device_cannot_hold_is_in_main_memory() {
    let dir = dir();
    let spec = spec(Arch::Qwen3Moe);
    let base = write(&spec, dir.path().join("base.gguf"));
    let size = terrace_ggml::gguf::read(&base).unwrap().size();
    let servers = servers(2, ByteSize(size.bytes() / 2 + (24 << 20)));
    let mut engine = load(options(&base, &servers));
    let before = trace(&mut engine);
    let mut states = Vec::new();
    let mut back = Vec::new();
    let mut changed = spec;
    for tensor in ["gate", "up", "down"]
        .iter()
        .flat_map(|role| [0, 1, 2].map(|layer| format!("blk.{layer}.ffn_{role}_exps.weight")))
    {
        changed = with(&changed, &tensor, WeightType::F16);
        let donor = write(&changed, dir.path().join(format!("{tensor}.gguf")));
        match engine.swap(&[from_file(&tensor, &donor)]) {
            Ok(report) => states.push(report.swapped[0].state),
            Err(ReloadError::Refused(refusals)) => panic!("{refusals:?}"),
            Err(error) => panic!("{error}"),
        }
        back.push(original(&tensor));
    }
    assert!(states.contains(&"fallback-cpu"), "{states:?}");
    let whole = write(&changed, dir.path().join("whole.gguf"));
    let plain = trace(&mut load(reloading::options(&whole, Manage::None)));
    assert_eq!(trace(&mut engine).tokens, plain.tokens, "{states:?}");
    engine.swap(&back).unwrap();
    assert!(trace(&mut engine) == before);
}

/// A tensor that cannot change names itself and refuses the others of its file, unless the caller takes the
/// rest.
#[test]
fn a_tensor_that_cannot_change_leaves_the_rest_to_callers_that_ask() {
    let (dir, servers) = (dir(), servers(2, ByteSize::mib(512)));
    let spec = spec(Arch::Qwen3Moe);
    let base = write(&spec, dir.path().join("base.gguf"));
    let mut engine = load(options(&base, &servers));
    let before = trace(&mut engine);
    let (fixed, query) = ("blk.1.attn_output.weight", "blk.1.attn_q.weight");
    let query_alone = with(&spec, query, WeightType::Q4_0);
    let both = write(&with(&query_alone, fixed, WeightType::Q4_K), dir.path().join("both.gguf"));
    let only_query = write(&query_alone, dir.path().join("query.gguf"));
    let expected = trace(&mut load(options(&only_query, &servers)));
    std::fs::rename(&both, &base).unwrap();
    reloading::settle(&base);
    for _ in 0..2 {
        let refused = engine.reload_changed().unwrap_err();
        let ReloadError::Refused(refusals) = &refused else { panic!("{refused}") };
        assert_eq!(refusals.iter().map(|refusal| &refusal.tensor).collect::<Vec<_>>(), [fixed]);
        assert!(refused.to_string().contains(fixed), "{refused}");
        assert_eq!(engine.epoch(), 0);
    }
    assert!(trace(&mut engine) == before, "a refused reload changes nothing");
    let report = engine.reload_taking(Take::Acceptable).unwrap();
    assert_eq!(report.swapped.iter().map(|swapped| &swapped.tensor).collect::<Vec<_>>(), [query], "{report}");
    assert_eq!(report.refused.iter().map(|refusal| &refusal.tensor).collect::<Vec<_>>(), [fixed]);
    assert!(report.to_string().contains(&format!("not reloaded: {fixed}: ")), "{report}");
    assert!(trace(&mut engine) == expected, "the rest was replaced");
    // The file is known now, and nothing more is to be done.
    let nothing = engine.reload_changed().unwrap();
    assert!(nothing.is_empty());
    let earlier = nothing.earlier.unwrap();
    assert_eq!((earlier.epoch, earlier.tensors), (1, 1));
}
