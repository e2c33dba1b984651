//! More memory on devices.

use crate::models;
use terrace_model::{ByteSize, ModelFile};
use terrace_plan::machine::{DeviceProfile, StorageProfile, ThreadBandwidth};
use terrace_plan::options::{ContextOptions, DeviceOptions, HotOptions};
use terrace_plan::parts::Estimate;
use terrace_plan::{
    Expected, ExpectedSource, HotSize, MachineProfile, Note, PerDevice, PrefillPaths, Wishes, plan,
};

/// A machine with 12 cores, 64 GB of RAM and a device of `gib` for each of `devices`, with its
/// bandwidth in GB/s.
fn machine(devices: &[(u64, f64)]) -> MachineProfile {
    let mut machine = MachineProfile::unmeasured("m", 12, ByteSize::gib(64), ByteSize::gib(58));
    machine.memory.bandwidth = vec![ThreadBandwidth { threads: 12, bytes_per_s: 70e9 }];
    machine.storage = vec![StorageProfile { sequential_bytes_per_s: Some(7e9), ..StorageProfile::default() }];
    for &(gib, bandwidth) in devices {
        machine.devices.push(DeviceProfile {
            name: format!("gpu{}", machine.devices.len()),
            memory_total: ByteSize::gib(gib),
            memory_free: ByteSize::gib(gib),
            bandwidth_bytes_per_s: Some(bandwidth * 1e9),
            ..DeviceProfile::default()
        });
    }
    machine
}

/// The plan's estimate with devices of these sizes.
fn estimate(model: &ModelFile, devices: &[(u64, f64)], wishes: &Wishes) -> Estimate {
    plan(model, &machine(devices), wishes).unwrap().estimate.unwrap()
}

/// As runs have them: ggml copies weights to a device for graphs of 32 tokens on.
const OFFLOADED: PrefillPaths = PrefillPaths { offload: Some(32), streamed: true, copies: true };

fn expecting(prompt: u32, output: u32) -> Wishes {
    let expected = Expected { prompt, output, source: ExpectedSource::Stated };
    Wishes {
        context: ContextOptions { ctx: Some(8192), ..ContextOptions::default() },
        expected,
        paths: OFFLOADED,
        ..Wishes::default()
    }
}

/// Estimates of all models and three mixes with one device, of 2 to 48 GiB: each with the one
/// before it.
fn ladder(paths: PrefillPaths, mut check: impl FnMut(&str, &Estimate, &Estimate)) {
    for model in models::all() {
        for (prompt, output) in [(512, 256), (4096, 64), (64, 1024)] {
            let wishes = Wishes { paths, ..expecting(prompt, output) };
            let mut before: Option<Estimate> = None;
            for gib in [2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48] {
                let now = estimate(&model, &[(gib, 600.0)], &wishes);
                if let Some(before) = &before {
                    check(&format!("{} {prompt}/{output}, {gib} GiB", model.architecture()), before, &now);
                }
                before = Some(now);
            }
        }
    }
}

#[test]
fn more_memory_never_lowers_what_is_weighed() {
    ladder(OFFLOADED, |at, before, now| {
        assert!(
            now.answer_ms <= before.answer_ms * 1.0005,
            "{at}: {} ms became {}",
            before.answer_ms,
            now.answer_ms
        );
    });
}

/// Where runs use devices for all they can in prefill, what is good for one rate is nearly always
/// good for the other.
#[test]
fn with_every_path_neither_rate_falls_by_much() {
    let paths = PrefillPaths { offload: Some(32), streamed: true, copies: true };
    let (mut steps, mut falls) = (0, 0);
    ladder(paths, |at, before, now| {
        for (what, before, now) in [
            ("decode", before.decode_tok_s, now.decode_tok_s),
            ("prefill", before.prefill_tok_s, now.prefill_tok_s),
        ] {
            assert!(now >= before * 0.9, "{at}: {what} of {before} tokens/s became {now}");
            steps += 1;
            falls += usize::from(now < before * 0.98);
        }
    });
    assert!(falls * 50 < steps, "{falls} of {steps} fall by more than 2 %");
}

/// Experts that are sent to a device make prompts faster, and no plan worse.
#[test]
fn sending_experts_is_never_worse() {
    let mut faster = 0;
    for model in models::all() {
        for gib in [4, 8, 16, 24] {
            let at = |streamed| {
                let paths = PrefillPaths { streamed, ..OFFLOADED };
                estimate(&model, &[(gib, 600.0)], &Wishes { paths, ..expecting(4096, 64) })
            };
            let (without, with) = (at(false), at(true));
            let name = model.architecture();
            assert!(
                with.answer_ms <= without.answer_ms * 1.0005,
                "{name}, {gib} GiB: {} ms became {}",
                without.answer_ms,
                with.answer_ms
            );
            faster += usize::from(with.prefill_tok_s > 1.1 * without.prefill_tok_s);
        }
    }
    assert!(faster > 0, "some prompts are a tenth faster");
}

/// Where they do not, a larger device may hold copies instead of whole layers: that decodes faster,
/// and prefills more slowly.
#[test]
fn one_rate_may_fall_for_the_other() {
    let mut falls = 0;
    let paths = PrefillPaths { offload: Some(32), streamed: false, copies: true };
    ladder(paths, |_, before, now| {
        let lower = now.prefill_tok_s < 0.9 * before.prefill_tok_s;
        falls += usize::from(lower && now.decode_tok_s > 1.1 * before.decode_tok_s);
    });
    assert!(falls > 0, "decision 0033 says otherwise");
}

/// A second device, slower and of any size, and more memory on either.
#[test]
fn more_memory_on_either_of_two_devices_never_lowers_what_is_weighed() {
    for model in [models::qwen3_30b(), models::mixtral()] {
        let wishes = expecting(512, 256);
        let answer = |fast, slow| estimate(&model, &[(slow, 270.0), (fast, 900.0)], &wishes).answer_ms;
        for (fast, slow) in [(4, 2), (8, 4), (8, 8), (16, 4)] {
            let now = answer(fast, slow);
            for more in [answer(fast + 2, slow), answer(fast, slow + 2)] {
                assert!(more <= now * 1.005, "{fast} and {slow} GiB: {now} ms became {more}");
            }
        }
    }
}

/// A device that computes on main memory holds nothing, but computes the graphs of prompts, unless
/// they are short, the device is elsewhere, or runs do not offer it any.
#[test]
fn a_unified_device_counts_for_large_batches() {
    let model = models::qwen3_30b();
    let at = |bandwidth: Option<f64>, wishes: &Wishes| {
        let mut machine = machine(&[]);
        machine.devices.extend(bandwidth.map(|bytes| DeviceProfile {
            name: "gpu0".into(),
            memory_total: ByteSize::gib(48),
            memory_free: ByteSize::gib(48),
            unified: true,
            bandwidth_bytes_per_s: Some(bytes),
            ..DeviceProfile::default()
        }));
        let plan = plan(&model, &machine, wishes).unwrap();
        assert!(plan.devices.is_empty() && plan.layers.iter().all(|layer| layer.home == "ram"));
        plan.estimate.unwrap()
    };
    let without = at(None, &expecting(512, 256));
    let with = at(Some(250e9), &expecting(512, 256));
    assert!(with.prefill_tok_s > 1.5 * without.prefill_tok_s, "{with:?}");
    assert_eq!(with.decode_tok_s, without.decode_tok_s);
    let note = Note::UnifiedBatches { device: "gpu0".into(), tokens: 32 };
    assert!(with.notes.contains(&note) && !without.notes.contains(&note));
    // Also if that takes longer.
    let slow = at(Some(1e9), &expecting(512, 256));
    assert!(slow.prefill_tok_s < without.prefill_tok_s, "{slow:?}");
    // Not in short prompts.
    let (short, with_short) = (at(None, &expecting(16, 256)), at(Some(250e9), &expecting(16, 256)));
    assert_eq!(with_short.prefill_tok_s, short.prefill_tok_s);
    // Nor if runs do not.
    let paths = PrefillPaths { offload: None, ..OFFLOADED };
    let off = at(Some(250e9), &Wishes { paths, ..expecting(512, 256) });
    assert_eq!(off.prefill_tok_s, without.prefill_tok_s);
    assert!(off.notes.contains(&Note::UnifiedUnused { device: "gpu0".into() }));
}

/// A machine of `memory` GiB whose device holds weights in it, three quarters at most.
fn shared(memory: u64) -> MachineProfile {
    let mut machine = machine(&[(memory * 3 / 4, 300.0)]);
    (machine.memory.total, machine.memory.available) = (ByteSize::gib(memory), ByteSize::gib(memory - 4));
    let device = &mut machine.devices[0];
    (device.unified, device.holds_weights) = (true, true);
    machine
}

/// What a device holds in main memory is not there for RAM's weights; more memory is never worse, and a device with as much
/// memory of its own is at least as good.
#[test]
fn a_device_that_holds_weights_in_main_memory_takes_them_from_it() {
    for model in [models::qwen3_30b(), models::mixtral()] {
        let wishes = expecting(512, 256);
        let mut before = f64::INFINITY;
        for memory in [8, 12, 16, 24, 32, 64] {
            let machine = shared(memory);
            let plan = plan(&model, &machine, &wishes).unwrap();
            let held: u64 = plan.tiers[..2]
                .iter()
                .map(|tier| [tier.weights, tier.expert_cache, tier.ring, tier.context])
                .map(|parts| parts.iter().map(|part| part.bytes()).sum::<u64>())
                .sum();
            assert!(held <= machine.ram_room().bytes(), "{memory} GiB: {:?}", plan.tiers);
            let estimate = plan.estimate.unwrap();
            assert!(estimate.answer_ms <= before * 1.005, "{memory} GiB: {before} ms became {estimate:?}");
            before = estimate.answer_ms;
            assert!(!estimate.notes.iter().any(|note| matches!(note, Note::UnifiedUnused { .. })));
            let mut apart = machine.clone();
            apart.devices[0].unified = false;
            apart.devices[0].h2d_bytes_per_s = Some(machine.devices[0].h2d());
            let apart = terrace_plan::plan(&model, &apart, &wishes).unwrap().estimate.unwrap();
            assert!(apart.answer_ms <= estimate.answer_ms * 1.005, "{memory} GiB: {apart:?}; {estimate:?}");
        }
        // All of it: as fast as the device.
        let all = plan(&model, &shared(64), &wishes).unwrap();
        assert!(all.layers.iter().all(|layer| layer.home == "gpu0"), "{:?}", all.layers);
    }
}

/// All experts in RAM, dense weights on a device, and copies of a given size beside them: the more, the
/// faster tokens are decoded. Prompts are left to ggml, which copies all experts.
#[test]
fn copies_of_a_given_size_are_estimated() {
    let model = models::qwen3_30b();
    let at = |copies: HotSize| {
        let wishes = Wishes {
            devices: DeviceOptions {
                n_gpu_layers: Some(u32::MAX),
                n_cpu_moe: Some(u32::MAX),
                ..DeviceOptions::default()
            },
            hot: HotOptions { hot_cache: PerDevice::all(copies), ..HotOptions::default() },
            ..expecting(512, 256)
        };
        plan(&model, &machine(&[(24, 600.0)]), &wishes).unwrap()
    };
    let without = at(HotSize::Off).estimate.unwrap();
    let mut before = without.clone();
    for gib in [2, 4, 8] {
        let plan = at(HotSize::Bytes(ByteSize::gib(gib)));
        assert!(!plan.hot.is_empty());
        let now = plan.estimate.unwrap();
        assert!(now.decode_tok_s > before.decode_tok_s, "{gib} GiB: {before:?}; {now:?}");
        // Large batches are ggml's, or the lane's where that is faster.
        assert!(now.prefill_tok_s >= without.prefill_tok_s, "{gib} GiB: {without:?}; {now:?}");
        before = now;
    }
    let most = at(HotSize::Max).estimate.unwrap();
    assert!(most.decode_tok_s > before.decode_tok_s, "{most:?}");
}
