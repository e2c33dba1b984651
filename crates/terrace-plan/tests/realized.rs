//! From a placement to what a run does, and back to what that costs.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod models;

use proptest::prelude::*;
use terrace_model::KvType;
use terrace_model::{ByteSize, ModelFile};
use terrace_plan::{
    Budget, DeviceProfile, Given, Machine, MachineProfile, Manage, Mode, PlaceError, PlaceRequest, Placement,
    Planner, RealizeError, Request, RuleError, TensorRule, apply_rules, assess, context_size, place, plan,
    plan_selection,
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

fn context(model: &ModelFile, placed: &Placement, ubatch: u32) -> ByteSize {
    context_size(model, placed.context.tokens, placed.context.kv_type, ubatch, 1).total()
}

proptest! {
    #[test]
    fn what_was_placed_can_run_and_costs_what_was_said(
        which in 0..models::all().len(),
        ram in 2u64..80,
        budget in prop::option::of(1u64..80),
        tokens in prop::sample::select(vec![512u32, 4096, 32768]),
        kv_type in prop::sample::select(vec![KvType::F16, KvType::Q8_0, KvType::Q4_0]),
    ) {
        let model = models::all().swap_remove(which);
        let ram_budget = budget.map_or(Budget::Auto, |gib| Budget::Bytes(ByteSize::gib(gib)));
        let asked = PlaceRequest { ram_budget, context: Some(tokens), kv_type: kv_type.into(), ..PlaceRequest::default() };
        let machine = machine(ByteSize::gib(ram));
        let Ok(placed) = place(&model, &machine, &asked) else { return Ok(()) };
        let given = placed.realize(&model).unwrap();
        let context = context(&model, &placed, asked.ubatch);
        let memory = Machine { ram_available: machine.memory.available };
        let request = Request { manage: Manage::Auto, ram_budget, context, mapping: false };
        let run = plan_selection(&model, &memory, &request, given.managed.clone(), ByteSize::ZERO).unwrap();
        prop_assert_eq!(run.managed.bytes(&model) + run.resident, model.size());
        prop_assert!(run.resident + run.slots <= run.budget);
        // The slots are what was placed at least: what is left over and holds no matrix more goes to them.
        prop_assert!(run.slots + ByteSize(4096) >= given.slots, "{} {}", run.slots, given.slots);
        let again = assess(&model, &machine, &asked, &given).unwrap();
        prop_assert_eq!(again.planner, Planner::Given);
        prop_assert_eq!(&again.streamed, &placed.streamed);
        prop_assert_eq!(&again.read_by_row, &placed.read_by_row);
        let (a, b) = (again.estimate.decode_tok_s, placed.estimate.decode_tok_s);
        prop_assert!((a / b - 1.0).abs() < 2e-3, "{a} {b}");
        // As JSON it is still the same.
        let text = serde_json::to_string(&placed).unwrap();
        prop_assert_eq!(Placement::from_json(&text).unwrap().realize(&model).unwrap(), given);
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
        let asked = PlaceRequest { ram_budget, ..PlaceRequest::default() };
        let Ok(placed) = place(&model, &machine, &asked) else { return Ok(()) };
        let memory = Machine { ram_available: machine.memory.available };
        let request = Request { manage, ram_budget, context: context(&model, &placed, 512), mapping: false };
        let Ok(run) = plan(&model, &memory, &request) else { return Ok(()) };
        let given = Given { managed: run.managed.clone(), slots: run.slots, ..Given::default() };
        let manual = assess(&model, &machine, &asked, &given).unwrap();
        // Page padding of slots is the only thing that a manual mode may have more of.
        prop_assert!(manual.estimate.decode_tok_s <= placed.estimate.decode_tok_s * 1.01,
            "{manage}: {} {}", manual.estimate.decode_tok_s, placed.estimate.decode_tok_s);
    }
}

#[test]
fn edited_plans_are_followed_or_refused_by_name() {
    let model = models::qwen3_30b();
    let asked = PlaceRequest::default();
    let machine = machine(ByteSize::gib(12));
    let placed = place(&model, &machine, &asked).unwrap();
    let whole = placed.realize(&model).unwrap();
    assert!(whole.managed.tensors.iter().all(|m| m.experts == Some(128)));

    let mut smaller = placed.clone();
    let ram = smaller.tiers.iter_mut().find(|tier| tier.tier == "ram").unwrap();
    ram.expert_cache = ByteSize::gib(2);
    smaller.streamed = vec!["blk.3.attn_q.weight".into()];
    let given = smaller.realize(&model).unwrap();
    assert_eq!(given.managed.tensors.len(), whole.managed.tensors.len() + 1);
    assert_eq!(given.slots, ByteSize::gib(2) + smaller.tiers[0].ring);

    type Edit = fn(&mut Placement);
    let cases: [(Edit, &str); 7] = [
        (
            |p| p.streamed.push("blk.99.ffn_up.weight".into()),
            "`blk.99.ffn_up.weight`, which this model does not have",
        ),
        (|p| p.streamed.push("blk.0.ffn_up_exps.weight".into()), "through the expert cache"),
        (|p| p.streamed.push("blk.0.attn_norm.weight".into()), "only matrices"),
        (|p| p.streamed.push("token_embd.weight".into()), "`read_by_row`"),
        (|p| p.read_by_row.push("blk.0.attn_q.weight".into()), "tables"),
        (|p| drop(p.layers.pop()), "48 layers"),
        (|p| p.model.bytes = ByteSize(1), "this model is"),
    ];
    for (edit, part) in cases {
        let mut edited = placed.clone();
        edit(&mut edited);
        let message = edited.realize(&model).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
    let mut more = placed.clone();
    more.layers[5].experts.as_mut().unwrap().on_device = 129;
    assert!(matches!(
        more.realize(&model),
        Err(RealizeError::Experts { layer: 5, planned: 129, experts: 128 })
    ));
    let mut elsewhere = placed;
    elsewhere.layers[5].home = "gpu7".into();
    let error = assess(&model, &machine, &asked, &elsewhere.realize(&model).unwrap()).unwrap_err();
    assert!(matches!(error, PlaceError::NoDevice { .. }), "{error}");
}

#[test]
fn what_is_asked_of_devices_holds() {
    let model = models::qwen3_30b();
    let machine = with_device(machine(ByteSize::gib(24)), 6);
    for layers in [0, 1, 5, 12] {
        let asked = PlaceRequest { device_layers: Some(layers), hot_lanes: false, ..PlaceRequest::default() };
        let placed = place(&model, &machine, &asked).unwrap();
        let there = placed.layers.iter().filter(|layer| layer.home == "gpu0").count();
        assert_eq!(there, layers as usize, "{placed}");
        let part = |l: &terrace_plan::PlacedLayer| {
            l.experts.is_some_and(|e| e.on_device > 0 && e.on_device < e.count)
        };
        assert!(!placed.layers.iter().any(part), "no lanes were asked for");
        assert_eq!(placed.realize(&model).unwrap().homes.iter().flatten().count(), layers as usize);
    }
    let least = PlaceRequest { vram_budget: Budget::Bytes(ByteSize::mib(1)), ..PlaceRequest::default() };
    let placed = place(&model, &machine, &least).unwrap();
    assert!(placed.layers.iter().all(|layer| layer.home == "ram"), "{placed}");
    let all = PlaceRequest { device_layers: Some(49), hot_lanes: false, ..PlaceRequest::default() };
    let experts_in_ram = place(&model, &machine, &all).unwrap();
    assert!(experts_in_ram.layers.iter().all(|layer| layer.home == "gpu0"));
}

/// Of layers with copies of a part, all experts are streamed through slots for the others, and what is reckoned of that is what
/// was planned.
#[test]
fn layers_with_copies_are_streamed() {
    let model = models::qwen3_30b();
    for ram in [8, 40] {
        let machine = with_device(machine(ByteSize::gib(ram)), 8);
        let asked = PlaceRequest::default();
        let placed = place(&model, &machine, &asked).unwrap();
        assert!(placed.summary.contains("hot lanes on gpu0"), "{placed}");
        let given = placed.realize(&model).unwrap();
        let managed = |layer: u32| {
            let name = format!("blk.{layer}.ffn_up_exps.weight");
            given.managed.tensors.iter().any(|m| model.tensors[m.tensor].name == name)
        };
        for (index, layer) in placed.layers.iter().enumerate() {
            let Some(experts) = layer.experts else { continue };
            assert_eq!(given.on_device[index], experts.on_device);
            let part = experts.on_device > 0 && experts.on_device < experts.count;
            assert!(!part || managed(layer.layer.unwrap()), "{placed}");
        }
        let again = assess(&model, &machine, &asked, &given).unwrap();
        let (a, b) = (placed.estimate.decode_tok_s, again.estimate.decode_tok_s);
        assert!((a / b - 1.0).abs() < 0.02, "{placed}\n{again}");
        let ram_of = |placed: &Placement| placed.tiers.iter().find(|tier| tier.tier == "ram").unwrap().used();
        let (a, b) = (ram_of(&placed).bytes() as f64, ram_of(&again).bytes() as f64);
        assert!((a / b - 1.0).abs() < 0.02, "{placed}\n{again}");
    }
}

#[test]
fn rules_change_what_is_streamed() {
    let model = models::deepseek();
    let memory = Machine { ram_available: ByteSize::gib(64) };
    let request = Request { manage: Manage::Experts, mapping: false, ..Request::default() };
    let planned = plan(&model, &memory, &request).unwrap();
    let name = |m: &terrace_plan::Managed| model.tensors[m.tensor].name.clone();
    let rules = |texts: &[&str]| -> Vec<TensorRule> { texts.iter().map(|t| t.parse().unwrap()).collect() };
    let mut selection = planned.managed.clone();
    let devices = apply_rules(
        &rules(&[r"blk\.[1-3]\..*exps=ram", r"blk\.0\.ffn_(up|down)=disk", "^output.weight=RPC0"]),
        &model,
        &mut selection,
    )
    .unwrap();
    assert_eq!(selection.tensors.len(), planned.managed.tensors.len() - 9 + 2);
    assert!(selection.tensors.is_sorted_by_key(|m| m.tensor));
    assert!(!selection.tensors.iter().any(|m| name(m).starts_with("blk.2.")));
    assert_eq!(devices["RPC0"].tensors.len(), 1);
    let run = plan_selection(&model, &memory, &request, selection, devices["RPC0"].bytes(&model)).unwrap();
    assert_eq!((run.manage, run.mode), (Manage::Ffn, Mode::MixedStreaming));

    let mut selection = planned.managed.clone();
    let error = apply_rules(&rules(&["exps=ram", "blk.99=ram"]), &model, &mut selection).unwrap_err();
    assert_eq!(error, RuleError::Unused { rule: "blk.99=ram".into() });
    let error = apply_rules(&rules(&["attn_norm=disk"]), &model, &mut selection).unwrap_err();
    assert!(error.to_string().contains("attn_norm.weight"), "{error}");
    for (text, part) in [("exps", "no REGEX=ram"), ("=ram", "no REGEX=ram"), ("a(=ram", "unclosed group")] {
        let error = text.parse::<TensorRule>().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
