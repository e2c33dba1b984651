//! Plans of well-known models for machines that exist only as descriptions.

use crate::models;
use terrace_model::{ByteSize, ModelFile};
use terrace_model::{KvType, KvTypes};
use terrace_plan::advice::{WhatIf, advise, explain};
use terrace_plan::machine::{DeviceProfile, ProfileError, StorageProfile, ThreadBandwidth};
use terrace_plan::options::{ContextOptions, MemoryOptions};
use terrace_plan::{
    Budget, HitCurve, KvChoice, MachineProfile, Mode, Plan, PlanError, PlanFile, Planner, Wishes, plan,
};

/// Describes a machine with 8 cores, 50 GB/s of memory and a disk with 3.5 GB/s.
fn machine(ram: u64) -> MachineProfile {
    let mut machine = MachineProfile::unmeasured("m", 8, ByteSize::gib(ram + 2), ByteSize::gib(ram));
    machine.memory.bandwidth = vec![ThreadBandwidth { threads: 8, bytes_per_s: 50e9 }];
    machine.storage =
        vec![StorageProfile { sequential_bytes_per_s: Some(3.5e9), ..StorageProfile::default() }];
    machine
}

fn with_device(mut machine: MachineProfile, gib: u64) -> MachineProfile {
    machine.devices.push(DeviceProfile {
        name: format!("gpu{}", machine.devices.len()),
        memory_total: ByteSize::gib(gib),
        memory_free: ByteSize::gib(gib),
        bandwidth_bytes_per_s: Some(900e9),
        ..DeviceProfile::default()
    });
    machine
}

fn placed(model: &ModelFile, machine: &MachineProfile) -> Plan {
    plan(model, machine, &Wishes::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn tier<'a>(placement: &'a Plan, name: &str) -> &'a terrace_plan::parts::TierUse {
    placement.tiers.iter().find(|tier| tier.tier == name).unwrap()
}

#[test]
fn modes_follow_from_the_room() {
    for model in models::all() {
        let roomy = placed(&model, &machine(1000));
        assert_eq!(roomy.mode, Mode::Mapped, "{roomy:#}");
        assert_eq!(tier(&roomy, "disk").weights, ByteSize::ZERO);
        assert_eq!(tier(&roomy, "ram").weights, model.size(), "every byte has a place");
        assert_eq!(roomy.estimate.as_ref().unwrap().read_per_token, ByteSize::ZERO);
    }
    let mixtral = placed(&models::mixtral(), &machine(16));
    assert_eq!(mixtral.mode, Mode::ExpertStreaming, "{mixtral:#}");
    let dense = placed(&models::dense_70b(), &machine(30));
    assert_eq!(dense.mode, Mode::DenseFfnStreaming, "{dense:#}");
    assert!(dense.streamed.iter().all(|name| name.contains("ffn")));
    let tight = placed(&models::dense_70b(), &machine(4));
    assert_eq!(tight.mode, Mode::MixedStreaming, "{tight:#}");
    assert!(tight.estimate.as_ref().unwrap().decode_tok_s < dense.estimate.as_ref().unwrap().decode_tok_s);
}

#[test]
fn models_that_fit_are_mapped() {
    let model = models::qwen3_30b();
    let whole = model.size().bytes() >> 30;
    let fits = placed(&model, &machine(whole + 3));
    assert_eq!(fits.mode, Mode::Mapped, "{fits:#}");
    let nearly = placed(&model, &machine(whole));
    assert_eq!(nearly.mode, Mode::ExpertStreaming, "{nearly:#}");
    let on_device = placed(&model, &with_device(machine(whole + 3), 8));
    assert_eq!(on_device.mode, Mode::ExpertStreaming, "slots hold what has no copy: {on_device:#}");
    assert_eq!(on_device.estimate.as_ref().unwrap().read_per_token, ByteSize::ZERO);
}

#[test]
fn every_byte_has_one_place_and_no_tier_overflows() {
    for model in models::all() {
        for ram in [6, 12, 20, 40] {
            for devices in 0..3 {
                let machine = (0..devices).fold(machine(ram), |machine, _| with_device(machine, 8));
                let placement = match plan(&model, &machine, &Wishes::default()) {
                    Ok(placement) => placement,
                    Err(PlanError::AutoNoRoom { .. }) => continue,
                    Err(error) => panic!("{error}"),
                };
                let weights =
                    |tier: &terrace_plan::parts::TierUse| (tier.weights + tier.expert_cache).bytes();
                let all: u64 = placement.tiers.iter().map(weights).sum();
                let slack = model.size().bytes().abs_diff(all);
                assert!(slack < 1 << 20, "{slack} bytes in two places or none: {placement}");
                for tier in &placement.tiers {
                    assert!(tier.room.is_none_or(|room| tier.used() <= room), "{placement:#}");
                }
            }
        }
    }
}

#[test]
fn devices_take_dense_weights_first_then_the_hottest_experts() {
    let model = models::qwen3_30b();
    let without = placed(&model, &machine(40));
    let with = placed(&model, &with_device(machine(40), 8));
    assert!(
        with.estimate.as_ref().unwrap().decode_tok_s > 1.5 * without.estimate.as_ref().unwrap().decode_tok_s,
        "{without}\n{with}"
    );
    assert!(with.summary.contains("copies of experts on gpu0"), "{with:#}");
    assert!(with.layers.iter().all(|layer| layer.home == "gpu0"));
    assert_eq!(with.planner, Planner::Lp, "what the fixed family has is no better");
}

#[test]
fn a_plan_reads_back() {
    let placement = placed(&models::gpt_oss(), &with_device(machine(8), 4));
    let text = serde_json::to_string(&placement).unwrap();
    let read: Plan = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
    assert!(PlanFile::from_json(&text).is_ok());
    let other = text.replacen("\"version\":2", "\"version\":7", 1);
    assert!(PlanFile::from_json(&other).unwrap_err().to_string().contains("version 7"));
    assert!(PlanFile::from_json("{}").unwrap_err().to_string().contains("not a plan"));
}

#[test]
fn what_cannot_be_is_said() {
    let model = models::dense_70b();
    let error = plan(&model, &machine(1), &Wishes::default()).unwrap_err().to_string();
    assert!(error.contains("too little RAM") && error.contains("the minimum is"), "{error}");
    let mut headless = model.clone();
    headless.tensors.retain(|tensor| tensor.layer().is_none());
    let headless = plan(&headless, &machine(64), &Wishes::default()).unwrap();
    assert!(headless.estimate.is_none(), "nothing that a token would pass through");
    let mut old = machine(64);
    old.version = 0;
    assert!(matches!(old.check(), Err(ProfileError::Version { found: 0, .. })));
    assert!(plan(&model, &old, &Wishes::default()).unwrap().estimate.is_none());
}

#[test]
fn the_context_is_counted_first() {
    let model = models::qwen3_30b();
    let at = |tokens, kv_type| {
        let request = Wishes {
            context: ContextOptions {
                ctx: Some(tokens),
                kv_type: KvChoice::Types(KvTypes::both(kv_type)),
                ..ContextOptions::default()
            },
            ..Wishes::default()
        };
        plan(&model, &machine(12), &request).unwrap()
    };
    let (short, long, quantised) = (at(4096, KvType::F16), at(40960, KvType::F16), at(40960, KvType::Q8_0));
    // 48 layers with 4 heads of 64 keys and 64 values (the model's width divided by its heads).
    assert_eq!(short.context.cache, ByteSize(48 * 4 * 128 * 2 * 4096));
    assert_eq!(long.context.cache.bytes(), 10 * short.context.cache.bytes());
    assert!(quantised.context.cache < long.context.cache);
    let cached = |placement: &Plan| tier(placement, "ram").expert_cache;
    assert!(cached(&long) < cached(&quantised) && cached(&quantised) < cached(&short));
    let budget = Wishes {
        memory: MemoryOptions { ram_budget: Budget::Bytes(ByteSize::gib(6)), ..MemoryOptions::default() },
        ..Wishes::default()
    };
    let ram = plan(&model, &machine(12), &budget).unwrap();
    let ram = tier(&ram, "ram");
    assert!(ram.weights + ram.expert_cache + ram.ring <= ByteSize::gib(6));
}

#[test]
fn uniform_routing_reads_more() {
    let model = models::qwen3_30b();
    let uniform = Wishes { hits: Some(HitCurve::uniform()), ..Wishes::default() };
    let uniform = plan(&model, &machine(10), &uniform).unwrap();
    let typical = placed(&model, &machine(10));
    assert!(
        uniform.estimate.as_ref().unwrap().decode_tok_s
            < 0.7 * typical.estimate.as_ref().unwrap().decode_tok_s
    );
}

#[test]
fn advice_helps_and_grows() {
    for (model, ram) in [(models::dense_70b(), 24), (models::qwen3_30b(), 8), (models::mixtral(), 16)] {
        let (machine, request) = (machine(ram), Wishes::default());
        let placement = placed(&model, &machine);
        let advice = advise(&model, &machine, &request, &placement);
        assert!(!advice.is_empty() && advice.len() <= 3);
        assert!(advice.windows(2).all(|pair| pair[0].speedup < pair[1].speedup), "{advice:?}");
        assert!(advice[0].speedup >= 1.05, "{advice:?}");
    }
    let (model, request) = (models::qwen3_30b(), Wishes::default());
    let roomy = machine(400);
    let advice = advise(&model, &roomy, &request, &placed(&model, &roomy));
    assert!(advice.iter().all(|a| !a.what.contains("RAM") && !a.what.contains("disk")), "{advice:?}");
}

#[test]
fn tensors_are_explained() {
    let (model, request) = (models::qwen3_30b(), Wishes::default());
    let machine = with_device(machine(10), 6);
    let about = |name: &str| explain(&model, &machine, &request, name).unwrap();
    let experts = about("blk.3.ffn_up_exps.weight");
    assert!(experts.contains("on disk only") && experts.contains("8 of 128 experts"), "{experts}");
    let dense = about("blk.3.attn_q.weight");
    assert!(dense.contains("on gpu0") && dense.contains("its layer in RAM"), "{dense:#}");
    assert!(about("token_embd.weight").contains("one row"));
    let error = explain(&model, &machine, &request, "blk.3.attn_q.wight").unwrap_err().to_string();
    assert!(error.contains("did you mean `blk.3.attn_q.weight`"), "{error}");
}

#[test]
fn better_machines_are_never_slower() {
    for model in models::all() {
        let base = with_device(machine(16), 6);
        let before = placed(&model, &base).estimate.unwrap().answer_ms;
        for change in
            ["ram=+1GiB", "ram=+5GiB", "nvme=4GB/s", "nvme=12GB/s", "membw=60GB/s", "device=8GiB@900GB/s"]
        {
            let change: WhatIf = change.parse().unwrap();
            let after = placed(&model, &change.apply(&base)).estimate.unwrap().answer_ms;
            // With devices, steps to better neighbours end in different local optima (decision
            // 0011).
            assert!(after <= before * 1.01, "{change:?}: {before} ms became {after}");
        }
    }
}
