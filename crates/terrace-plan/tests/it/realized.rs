//! Plans that are followed: what a run does, and what that costs.

use crate::models;
use proptest::prelude::*;
use terrace_model::{ByteSize, KvType};
use terrace_plan::machine::DeviceProfile;
use terrace_plan::options::{ContextOptions, DeviceOptions, MemoryOptions};
use terrace_plan::parts::PlannedLayer;
use terrace_plan::{
    Budget, FileError, KvChoice, MachineProfile, Manage, Mode, PerDevice, Plan, PlanError, PlanFile, Planner,
    RuleError, TensorRule, Warning, Wishes, plan,
};

fn machine(ram: ByteSize) -> MachineProfile {
    MachineProfile::unmeasured("m", 8, ram, ram)
}

fn with_device(mut machine: MachineProfile, gib: u64) -> MachineProfile {
    let memory = ByteSize::gib(gib);
    let device = DeviceProfile {
        name: "gpu0".into(),
        memory_total: memory,
        memory_free: memory,
        ..DeviceProfile::default()
    };
    machine.devices.push(device);
    machine
}

/// Writes a plan file and reads it as wishes.
fn written(plan: &Plan) -> Wishes {
    let text = serde_json::to_string(plan).unwrap();
    Wishes { written: Some(PlanFile::from_json(&text).unwrap()), mapping: false, ..Wishes::default() }
}

fn speed(plan: &Plan) -> f64 {
    plan.estimate.as_ref().unwrap().decode_tok_s
}

proptest! {
    #[test]
    fn a_plan_that_was_written_is_the_same_plan(
        which in 0..models::all().len(),
        ram in 2u64..80,
        budget in prop::option::of(1u64..80),
        tokens in prop::sample::select(vec![512u32, 4096, 32768]),
        kv_type in prop::sample::select(vec![KvType::F16, KvType::Q8_0, KvType::Q4_0]),
    ) {
        let model = models::all().swap_remove(which);
        let ram_budget = budget.map_or(Budget::Auto, |gib| Budget::Bytes(ByteSize::gib(gib)));
        let kv_type = KvChoice::Types(kv_type.into());
        let asked =
            Wishes { memory: MemoryOptions { ram_budget, ..MemoryOptions::default() }, context: ContextOptions { ctx: Some(tokens), kv_type, ..ContextOptions::default() }, mapping: false, ..Wishes::default() };
        let machine = machine(ByteSize::gib(ram));
        let Ok(planned) = plan(&model, &machine, &asked) else { return Ok(()) };
        prop_assert_eq!(planned.managed.bytes(&model) + planned.resident, model.size());
        prop_assert!(planned.resident + planned.slots <= planned.budget);
        let again = match plan(&model, &machine, &Wishes { memory: MemoryOptions { ram_budget, ..MemoryOptions::default() }, ..written(&planned) }) {
            Ok(again) => again,
            // A budget overrides the reserve, but a file does not.
            Err(PlanError::File(FileError::NoRoom { .. })) if budget.is_some() => return Ok(()),
            Err(error) => panic!("{error}"),
        };
        prop_assert_eq!(again.planner, Planner::File);
        prop_assert_eq!(&again.streamed, &planned.streamed);
        prop_assert_eq!(&again.read_by_row, &planned.read_by_row);
        prop_assert_eq!(&again.managed, &planned.managed);
        prop_assert_eq!((again.mode, again.context.kv_type), (planned.mode, planned.context.kv_type));
        // Slot bytes into which no further block fits are not written.
        prop_assert!(again.slots <= planned.slots);
        let (a, b) = (speed(&again), speed(&planned));
        prop_assert!((a / b - 1.0).abs() < 2e-3, "{a} {b}");
    }

    #[test]
    fn manual_modes_cost_no_less_than_what_the_planner_finds(
        which in 0..models::all().len(),
        gib in 3u64..48,
        manage in prop::sample::select(vec![Manage::Experts, Manage::Ffn, Manage::All]),
    ) {
        let model = models::all().swap_remove(which);
        let machine = machine(ByteSize::gib(80));
        let ram_budget = Budget::Bytes(ByteSize::gib(gib));
        let asked = Wishes { memory: MemoryOptions { ram_budget, ..MemoryOptions::default() }, mapping: false, ..Wishes::default() };
        let Ok(placed) = plan(&model, &machine, &asked) else { return Ok(()) };
        let Ok(manual) = plan(&model, &machine, &Wishes { memory: MemoryOptions { stream: manage, ..asked.memory.clone() }, ..asked }) else { return Ok(()) };
        // A manual mode may be faster only by the page padding of its slots.
        prop_assert!(speed(&manual) <= speed(&placed) * 1.01, "{manage}: {} {}", speed(&manual), speed(&placed));
    }
}

fn file(plan: &Plan, edit: impl Fn(&mut Plan)) -> Wishes {
    let mut plan = plan.clone();
    edit(&mut plan);
    written(&plan)
}

#[test]
fn edited_plans_are_followed_or_refused_by_name() {
    let model = models::qwen3_30b();
    let machine = machine(ByteSize::gib(12));
    let placed = plan(&model, &machine, &Wishes::default()).unwrap();
    assert!(placed.managed.tensors.iter().all(|m| m.experts == Some(128)));

    let smaller = file(&placed, |plan| {
        let ram = plan.tiers.iter_mut().find(|tier| tier.tier == "ram").unwrap();
        ram.expert_cache = ByteSize::gib(2);
        plan.streamed = vec!["blk.3.attn_q.weight".into()];
    });
    let followed = plan(&model, &machine, &smaller).unwrap();
    assert_eq!(followed.managed.tensors.len(), placed.managed.tensors.len() + 1);
    assert_eq!(followed.slots.bytes() >> 12, (ByteSize::gib(2) + placed.tiers[0].ring).bytes() >> 12);

    type Edit = fn(&mut Plan);
    let cases: [(Edit, &str); 7] = [
        (
            |p| p.streamed.push("blk.99.ffn_up.weight".into()),
            "`blk.99.ffn_up.weight`, which this model does not have",
        ),
        (|p| p.streamed.push("blk.0.ffn_up_exps.weight".into()), "through the `expert_cache`"),
        (|p| p.streamed.push("blk.0.attn_norm.weight".into()), "only matrices"),
        (|p| p.streamed.push("token_embd.weight".into()), "`read_by_row`"),
        (|p| p.read_by_row.push("blk.0.attn_q.weight".into()), "tables"),
        (|p| drop(p.layers.pop()), "48 layers"),
        (|p| p.model.bytes = ByteSize(1), "this model is"),
    ];
    for (edit, part) in cases {
        let message = plan(&model, &machine, &file(&placed, edit)).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
    let more = file(&placed, |plan| plan.layers[5].experts.as_mut().unwrap().on_device = 129);
    assert!(matches!(
        plan(&model, &machine, &more),
        Err(PlanError::File(FileError::Experts { layer: 5, planned: 129, experts: 128 }))
    ));
    let other = file(&placed, |plan| plan.layers[5].experts.as_mut().unwrap().count = 129);
    assert!(matches!(
        plan(&model, &machine, &other),
        Err(PlanError::File(FileError::OtherExperts { layer: 5, planned: 129, experts: 128 }))
    ));
    let elsewhere = file(&placed, |plan| plan.layers[48].home = "gpu7".into());
    let error = plan(&model, &machine, &elsewhere).unwrap_err();
    assert!(matches!(error, PlanError::NoDevice { .. }), "{error}");
}

/// A layer may have matrices of fewer experts beside those of all, if groups of experts share one.
#[test]
fn plans_of_layers_with_two_numbers_of_experts_are_followed() {
    let mut model = models::qwen3_30b();
    let up = model.tensors.iter().filter(|tensor| tensor.name.ends_with("ffn_up_exps.weight"));
    let mut shared: Vec<_> = up.cloned().collect();
    for tensor in &mut shared {
        tensor.name = tensor.name.replace("_exps", "_chexps");
        tensor.shape.0[2] /= 2;
        tensor.extent.len /= 2;
    }
    model.tensors.extend(shared);
    let machine = machine(ByteSize::gib(12));
    let placed = plan(&model, &machine, &Wishes::default()).unwrap();
    let followed = plan(&model, &machine, &file(&placed, |_| ())).unwrap();
    assert_eq!(followed.managed, placed.managed);
}

/// A file of format version 1 gives the same plan for the same model and machine.
#[test]
fn plans_of_version_1_are_read() {
    let text = include_str!("../golden/plan-v1.json");
    let old: serde_json::Value = serde_json::from_str(text).unwrap();
    assert_eq!((&old["version"], &old["mode"]), (&1.into(), &"expert-streaming".into()));
    let model = models::qwen3_30b();
    let machine = machine(ByteSize::gib(12));
    let wishes = Wishes { written: Some(PlanFile::from_json(text).unwrap()), ..Wishes::default() };
    let followed = plan(&model, &machine, &wishes).unwrap();
    let same = plan(
        &model,
        &machine,
        &Wishes {
            context: ContextOptions { ctx: Some(2048), ..ContextOptions::default() },
            ..Wishes::default()
        },
    )
    .unwrap();
    assert_eq!(followed.managed, same.managed);
    assert_eq!((followed.context.tokens, followed.planner), (2048, Planner::File));
    assert_eq!(
        serde_json::to_value(followed.tiers[0].expert_cache).unwrap(),
        old["tiers"][0]["expert_cache"].as_u64().unwrap() / 4096 * 4096
    );
    assert_eq!(serde_json::to_value(followed.context.cache).unwrap(), old["context"]["cache"]);
    // What it expected then is not repeated: it expects what a plan of today does.
    let prefill = |plan: &Plan| plan.estimate.as_ref().unwrap().prefill_tok_s;
    assert_eq!((speed(&followed), prefill(&followed)), (speed(&same), prefill(&same)));
    // So does an edited file, with its change.
    let edited = text.replacen("\"streamed\": []", "\"streamed\": [\"blk.3.attn_q.weight\"]", 1);
    assert_ne!(edited, text);
    let wishes = Wishes { written: Some(PlanFile::from_json(&edited).unwrap()), ..Wishes::default() };
    assert_eq!(plan(&model, &machine, &wishes).unwrap().streamed, ["blk.3.attn_q.weight"]);
}

#[test]
fn what_is_asked_of_devices_holds() {
    let model = models::qwen3_30b();
    let machine = with_device(machine(ByteSize::gib(24)), 6);
    let part = |l: &PlannedLayer| l.experts.is_some_and(|e| e.on_device > 0 && e.on_device < e.count);
    for layers in [0, 1, 5, 12] {
        let placed = plan(
            &model,
            &machine,
            &Wishes {
                devices: DeviceOptions { n_gpu_layers: Some(layers), ..DeviceOptions::default() },
                ..Wishes::default()
            },
        )
        .unwrap();
        let there = placed.layers.iter().filter(|layer| layer.home == "gpu0").count();
        assert_eq!(there, layers as usize, "{placed:#}");
        assert!(!placed.layers.iter().any(part) && placed.hot.is_empty(), "no lanes were requested");
        let on_devices: u32 = placed.devices.layers.iter().map(|(_, layers)| layers).sum();
        assert_eq!(on_devices, layers);
    }
    let least = Wishes {
        devices: DeviceOptions {
            vram_budget: PerDevice::all(Budget::Bytes(ByteSize::mib(1))),
            ..DeviceOptions::default()
        },
        ..Wishes::default()
    };
    let placed = plan(&model, &machine, &least).unwrap();
    assert!(placed.layers.iter().all(|layer| layer.home == "ram"), "{placed:#}");
    let all = Wishes {
        devices: DeviceOptions { n_gpu_layers: Some(49), ..DeviceOptions::default() },
        ..Wishes::default()
    };
    let experts_in_ram = plan(&model, &machine, &all).unwrap();
    assert!(experts_in_ram.layers.iter().all(|layer| layer.home == "gpu0"));
    let too_many = Wishes {
        devices: DeviceOptions {
            n_gpu_layers: Some(49),
            vram_budget: PerDevice::all(Budget::Bytes(ByteSize::mib(1))),
            ..all.devices.clone()
        },
        ..all
    };
    assert!(matches!(plan(&model, &machine, &too_many), Err(PlanError::NoDeviceRoom { layers: 49, .. })));
}

/// What llama.cpp's users ask of accelerators is a warning where there is none, and where `-ngl 99` finds too
/// little room.
#[test]
fn layers_that_find_no_device_stay_in_ram() {
    let (model, machine) = (models::qwen3_30b(), machine(ByteSize::gib(12)));
    let ask = |layers, budget, rules: &[&str]| Wishes {
        devices: DeviceOptions {
            n_gpu_layers: layers,
            vram_budget: PerDevice::all(budget),
            ..DeviceOptions::default()
        },
        memory: MemoryOptions {
            override_tensor: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
            ..MemoryOptions::default()
        },
        ..Wishes::default()
    };
    let plain = plan(&model, &machine, &Wishes::default()).unwrap();
    for wishes in [ask(Some(99), Budget::Auto, &[]), ask(None, Budget::Auto, &["exps=CUDA0"])] {
        let planned = plan(&model, &machine, &wishes).unwrap();
        assert!(planned.warnings.contains(&Warning::NoAccelerator), "{:?}", planned.warnings);
        assert_eq!((&planned.managed, planned.slots), (&plain.managed, plain.slots));
    }
    let roomy = with_device(machine, 24);
    let planned = plan(&model, &roomy, &ask(Some(999), Budget::Bytes(ByteSize::mib(1)), &[])).unwrap();
    assert!(
        matches!(planned.warnings.last(), Some(Warning::LayersBeyondRoom { .. })),
        "{:?}",
        planned.warnings
    );

    // Experts of some layers off the device, which holds the rest.
    let kept = plan(&model, &roomy, &ask(Some(99), Budget::Auto, &[r"blk\.[0-9]\..*exps=host"])).unwrap();
    let of_rule = |tensor: usize| {
        let name = &model.tensors[tensor].name;
        name.contains("exps") && name.split('.').nth(1).is_some_and(|layer| layer.len() == 1)
    };
    let held = kept.devices.tensors(&model);
    assert!(!held.is_empty() && !held.iter().any(|&tensor| of_rule(tensor)), "{kept:#}");
}

/// Where only some experts of a layer have copies, all of its experts are streamed, with slots for
/// the others.
#[test]
fn layers_with_copies_are_streamed() {
    let model = models::qwen3_30b();
    for ram in [8, 40] {
        let machine = with_device(machine(ByteSize::gib(ram)), 8);
        let placed = plan(&model, &machine, &Wishes::default()).unwrap();
        assert!(placed.summary.contains("copies of experts on gpu0"), "{placed:#}");
        let managed = |layer: u32| {
            let name = format!("blk.{layer}.ffn_up_exps.weight");
            placed.managed.tensors.iter().any(|m| model.tensors[m.tensor].name == name)
        };
        for layer in &placed.layers {
            let Some(experts) = layer.experts else { continue };
            let part = experts.on_device > 0 && experts.on_device < experts.count;
            let hot = placed.hot.iter().find(|copies| Some(copies.layer) == layer.layer);
            assert_eq!(hot.map_or(0, |copies| copies.slots), if part { experts.on_device } else { 0 });
            assert!(!part || managed(layer.layer.unwrap()), "{placed:#}");
        }
        let again = plan(&model, &machine, &written(&placed)).unwrap();
        assert_eq!(again.hot, placed.hot);
        assert!((speed(&placed) / speed(&again) - 1.0).abs() < 0.02, "{placed:#}\n{again:#}");
        let ram_of = |plan: &Plan| plan.tiers.iter().find(|tier| tier.tier == "ram").unwrap().used();
        let (a, b) = (ram_of(&placed).bytes() as f64, ram_of(&again).bytes() as f64);
        assert!((a / b - 1.0).abs() < 0.02, "{placed:#}\n{again:#}");
    }
}

#[test]
fn a_budget_beyond_memory_is_what_memory_has() {
    let (model, machine) = (models::deepseek(), machine(ByteSize::gib(6)));
    let with = |gib| {
        let ram_budget = Budget::Bytes(ByteSize::gib(gib));
        plan(
            &model,
            &machine,
            &Wishes {
                memory: MemoryOptions { ram_budget, ..MemoryOptions::default() },
                mapping: false,
                ..Wishes::default()
            },
        )
        .unwrap()
    };
    let beyond = |plan: &Plan| {
        plan.warnings.iter().find_map(|warning| match warning {
            Warning::BudgetBeyondMemory { asked, room } => Some((*asked, *room)),
            _ => None,
        })
    };
    let plan = with(64);
    assert!(plan.resident + plan.slots + plan.context.ram <= ByteSize::gib(6));
    assert_eq!(beyond(&plan), Some((ByteSize::gib(64), plan.budget)));
    assert_eq!(beyond(&with(4)), None);
}

#[test]
fn rules_change_what_is_streamed() {
    let model = models::deepseek();
    let machine = machine(ByteSize::gib(64));
    let asked = Wishes {
        memory: MemoryOptions { stream: Manage::Experts, ..MemoryOptions::default() },
        mapping: false,
        ..Wishes::default()
    };
    let planned = plan(&model, &machine, &asked).unwrap();
    let name = |m: &terrace_plan::Managed| model.tensors[m.tensor].name.clone();
    let with = |texts: &[&str]| {
        let rules: Vec<TensorRule> = texts.iter().map(|t| t.parse().unwrap()).collect();
        plan(
            &model,
            &machine,
            &Wishes {
                memory: MemoryOptions { override_tensor: rules, ..asked.memory.clone() },
                ..asked.clone()
            },
        )
    };
    let rules = [r"blk\.[1-3]\..*exps=ram", r"blk\.0\.ffn_(up|down)=disk", "^output.weight=RPC0"];
    let run = with(&rules).unwrap();
    assert_eq!(run.managed.tensors.len(), planned.managed.tensors.len() - 9 + 2);
    assert!(run.managed.tensors.is_sorted_by_key(|m| m.tensor));
    assert!(!run.managed.tensors.iter().any(|m| name(m).starts_with("blk.2.")));
    assert!(run.devices.single.is_empty(), "this machine has no device: the weights stay in RAM");
    assert_eq!((run.manage, run.mode), (Manage::Ffn, Mode::MixedStreaming));
    assert_eq!(run.on_devices, run.devices.bytes(&model));

    // Single tensors count where they are.
    let tensor = model.tensor("output.weight").unwrap().size();
    let weights = |plan: &Plan, name: &str| {
        plan.tiers.iter().find(|tier| tier.tier == name).map_or(ByteSize::ZERO, |tier| tier.weights)
    };
    let roomy = with_device(machine.clone(), 24);
    let at = |rules: &[&str]| {
        let rules: Vec<TensorRule> = rules.iter().map(|text| text.parse().unwrap()).collect();
        plan(
            &model,
            &roomy,
            &Wishes {
                memory: MemoryOptions { override_tensor: rules, ..asked.memory.clone() },
                devices: DeviceOptions { n_gpu_layers: Some(0), ..asked.devices.clone() },
                ..asked.clone()
            },
        )
        .unwrap()
    };
    let (without, with_one) =
        (at(&["blk.1.ffn_down_exps=disk"]), at(&["blk.1.ffn_down_exps=disk", "^output.weight=gpu0"]));
    assert_eq!(weights(&with_one, "gpu0"), weights(&without, "gpu0") + tensor);
    assert_eq!(
        weights(&with_one, &with_one.tiers[0].tier) + tensor,
        weights(&without, &without.tiers[0].tier)
    );

    let error = with(&["exps=ram", "blk.99=ram"]).unwrap_err();
    assert_eq!(error, PlanError::Rule(RuleError::Unused { rule: "blk.99=ram".into() }));
    let mixed = with(&["attn=disk"]).unwrap();
    let small =
        |warning: &Warning| matches!(warning, Warning::SmallStayResident { tensors, .. } if *tensors > 0);
    assert!(mixed.warnings.iter().any(small), "{:?}", mixed.warnings);
    let error = with(&["attn_norm=disk"]).unwrap_err();
    assert!(error.to_string().contains("attn_norm.weight"), "{error}");
    for (text, part) in
        [("exps", "expected REGEX=ram"), ("=ram", "expected REGEX=ram"), ("a(=ram", "unclosed group")]
    {
        let error = text.parse::<TensorRule>().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn sizes_that_no_machine_has_are_refused() {
    let model = models::qwen3_30b();
    let machine = machine(ByteSize::gib(12));
    let planned = plan(&model, &machine, &Wishes { mapping: false, ..Wishes::default() }).unwrap();
    let text = serde_json::to_value(&planned).unwrap();
    for (field, size) in [("expert_cache", u64::MAX), ("ring", u64::MAX), ("expert_cache", u64::MAX - 1)] {
        let mut text = text.clone();
        let tiers = text["tiers"].as_array_mut().unwrap();
        let ram = tiers.iter_mut().find(|tier| tier["tier"] == "ram").unwrap();
        ram[field] = size.into();
        let written = PlanFile::from_json(&text.to_string()).unwrap();
        let error = plan(&model, &machine, &Wishes { written: Some(written), ..Wishes::default() });
        assert!(matches!(error, Err(PlanError::File(FileError::NoRoom { .. }))), "{field}: {error:?}");
    }
}

#[test]
fn what_a_plan_names_is_shown_in_one_line() {
    let model = models::qwen3_30b();
    let machine = machine(ByteSize::gib(12));
    let planned = plan(&model, &machine, &Wishes { mapping: false, ..Wishes::default() }).unwrap();
    let text = serde_json::to_value(&planned).unwrap();
    let (mut other, mut none, mut home) = (text.clone(), text.clone(), text.clone());
    other["model"]["name"] = "a\nb".into();
    other["model"]["bytes"] = 5.into();
    none["streamed"] = vec!["blk.0\n\u{1b}[2J"].into();
    home["layers"][0]["home"] = "device\nzero".into();
    for text in [other, none, home] {
        let written = PlanFile::from_json(&text.to_string()).unwrap();
        let error =
            plan(&model, &machine, &Wishes { written: Some(written), ..Wishes::default() }).unwrap_err();
        assert!(!error.to_string().contains(char::is_control), "{error}");
    }
    let mut kv_type = text;
    kv_type["context"]["kv_type"] = "f16\nf16".into();
    let error = PlanFile::from_json(&kv_type.to_string()).unwrap_err().to_string();
    assert!(error.contains(r"f16\nf16") && !error.contains('\n'), "{error}");
}
