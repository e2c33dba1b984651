//! Descriptions of machines: reading, and planning with them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use terrace_fuzz::model;
use terrace_model::{ByteSize, SplitMode};
use terrace_plan::advice::{WhatIf, advise, explain};
use terrace_plan::options::{ContextOptions, DeviceOptions, HotOptions, MemoryOptions};
use terrace_plan::{Budget, HotSize, KvChoice, MachineProfile, Manage, PerDevice, Wishes, plan};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(machine) = serde_json::from_str::<MachineProfile>(text) else { return };
    let json = serde_json::to_string(&machine).expect("plain data");
    serde_json::from_str::<MachineProfile>(&json).expect("what was written can be read");
    let what_if: WhatIf =
        "ram=+4GiB,nvme=7GB/s,membw=80GB/s,cores=3,device=24GiB@1TB/s".parse().expect("one");
    let changed = what_if.apply(&machine);
    let model = model();
    let wishes = [
        Wishes::default(),
        Wishes {
            memory: MemoryOptions {
                ram_budget: Budget::Bytes(ByteSize::mib(60)),
                ..MemoryOptions::default()
            },
            context: ContextOptions { kv_type: KvChoice::Auto, ..ContextOptions::default() },
            ..Wishes::default()
        },
        Wishes {
            hot: HotOptions {
                hot_cache: PerDevice::all(HotSize::Bytes(ByteSize::mib(30))),
                ..HotOptions::default()
            },
            memory: MemoryOptions { stream: Manage::Experts, ..MemoryOptions::default() },
            ..Wishes::default()
        },
        Wishes {
            hot: HotOptions { hot_cache: PerDevice::all(HotSize::Max), ..HotOptions::default() },
            ..Wishes::default()
        },
        Wishes {
            devices: DeviceOptions { split_mode: SplitMode::Tensor, ..DeviceOptions::default() },
            ..Wishes::default()
        },
    ];
    // One of them a call: a plan takes milliseconds.
    let variant = data.iter().map(|&byte| usize::from(byte)).sum::<usize>() % (wishes.len() + 2);
    let (machine, wishes) = match variant.checked_sub(2) {
        None => ([&machine, &changed][variant], &wishes[0]),
        Some(variant) => (&machine, &wishes[variant]),
    };
    // The program refuses such a description before it plans.
    if machine.check().is_err() {
        return;
    }
    let plan = match plan(&model, machine, wishes) {
        Ok(plan) => plan,
        Err(error) => return assert!(!error.to_string().contains('\n'), "{error}"),
    };
    assert!(plan.resident.bytes() + plan.slots.bytes() <= plan.budget.bytes(), "{plan}");
    let _ = (format!("{plan:#}"), plan.tables(80).to_string());
    if let Some(estimate) = &plan.estimate {
        let json = serde_json::to_value(estimate).expect("plain data");
        assert!(json["decode_tok_s"].is_number(), "{json}");
    }
    if variant == 2 {
        let advice = advise(&model, machine, wishes, &plan);
        assert!(advice.iter().all(|change| change.speedup.is_finite()), "{advice:?}");
        let _ = explain(&model, machine, wishes, "blk.1.ffn_up_exps.weight");
    }
});
