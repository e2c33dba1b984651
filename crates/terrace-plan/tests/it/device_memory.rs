//! More memory on devices.

use crate::models;
use terrace_model::{ByteSize, ModelFile};
use terrace_plan::machine::{DeviceProfile, StorageProfile, ThreadBandwidth};
use terrace_plan::parts::Estimate;
use terrace_plan::{Expected, ExpectedSource, MachineProfile, PrefillPaths, Wishes, plan};

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

fn expecting(prompt: u32, output: u32) -> Wishes {
    let expected = Expected { prompt, output, source: ExpectedSource::Stated };
    Wishes { expected, context: Some(8192), ..Wishes::default() }
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
    ladder(PrefillPaths::default(), |at, before, now| {
        assert!(
            now.answer_ms <= before.answer_ms * 1.0005,
            "{at}: {} ms became {}",
            before.answer_ms,
            now.answer_ms
        );
    });
}

/// Where runs use devices for all they can in prefill, what is good for one rate is good for the
/// other, but for 2 %.
#[test]
fn with_every_path_neither_rate_falls() {
    let paths = PrefillPaths { offload: true, streamed: true, copies: true };
    ladder(paths, |at, before, now| {
        for (what, before, now) in [
            ("decode", before.decode_tok_s, now.decode_tok_s),
            ("prefill", before.prefill_tok_s, now.prefill_tok_s),
        ] {
            assert!(now >= before * 0.98, "{at}: {what} of {before} tokens/s became {now}");
        }
    });
}

/// Where they do not, a larger device may hold copies instead of whole layers: that decodes faster,
/// and prefills more slowly.
#[test]
fn one_rate_may_fall_for_the_other() {
    let mut falls = 0;
    let paths = PrefillPaths { offload: true, streamed: false, copies: true };
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
