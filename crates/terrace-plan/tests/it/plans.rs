//! Budgets, modes, minima and warnings.

use crate::models;
use proptest::prelude::*;
use terrace_model::KvTypes;
use terrace_model::{ByteSize, ModelFile};
use terrace_plan::machine::auto_reserve;
use terrace_plan::model::{ContextSize, MATRIX_MIN, TensorClass, classify_all, slot_size};
use terrace_plan::options::MemoryOptions;
use terrace_plan::{Budget, MachineProfile, Manage, Mode, Plan, PlanError, Wishes, managed};

/// The part of a machine that plans by sets depend on.
#[derive(Clone, Copy)]
struct Machine {
    ram_available: ByteSize,
}

/// The part of the wishes that plans by sets depend on.
#[derive(Clone, Copy, Default)]
struct Request {
    manage: Manage,
    ram_budget: Budget,
    context: ByteSize,
    mapping: bool,
}

/// Makes the plan by sets alone: for a machine description without a version nothing can be
/// estimated, so the cost model has no plan.
fn plan(model: &ModelFile, machine: &Machine, request: &Request) -> Result<Plan, PlanError> {
    let ram = machine.ram_available;
    let machine = MachineProfile { version: 0, ..MachineProfile::unmeasured("m", 8, ram, ram) };
    let (compute, logits) = (ByteSize::ZERO, ByteSize::ZERO);
    let wishes = Wishes {
        memory: MemoryOptions {
            stream: request.manage,
            ram_budget: request.ram_budget,
            ..MemoryOptions::default()
        },
        mapping: request.mapping,
        measured: vec![(KvTypes::F16, ContextSize { cache: request.context, compute, logits })],
        ..Wishes::default()
    };
    terrace_plan::plan(model, &machine, &wishes)
}

const BIG: Machine = Machine { ram_available: ByteSize::gib(1024) };

fn request(manage: Manage, budget: ByteSize) -> Request {
    Request { manage, ram_budget: Budget::Bytes(budget), ..Request::default() }
}

fn planned(model: &ModelFile, manage: Manage, budget: ByteSize) -> Plan {
    plan(model, &BIG, &request(manage, budget)).unwrap_or_else(|e| panic!("{e}"))
}

/// Returns the smallest budget, taken from the error for a budget of one byte.
fn minimum(model: &ModelFile, manage: Manage) -> ByteSize {
    match plan(model, &BIG, &request(manage, ByteSize(1))) {
        Err(PlanError::BudgetTooSmall { minimum, .. }) => minimum,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_managed() {
    for model in models::all() {
        let classes = classify_all(&model);
        let has = |manage, class| {
            let selection = managed(&model, manage);
            let hits = selection.tensors.iter().filter(|m| classes[m.tensor] == class).count();
            (hits, classes.iter().filter(|c| **c == class).count())
        };
        for manage in [Manage::Experts, Manage::Ffn, Manage::All] {
            let (hits, experts) = has(manage, TensorClass::Expert);
            assert_eq!(hits, experts);
            assert_eq!(has(manage, TensorClass::Norm).0, 0);
            assert_eq!(has(manage, TensorClass::Other).0, 0);
        }
        for class in [TensorClass::DenseFfn, TensorClass::SharedExpert] {
            assert_eq!(has(Manage::Experts, class).0, 0);
            assert_eq!(has(Manage::Ffn, class).0, has(Manage::Ffn, class).1);
        }
        assert_eq!(has(Manage::Ffn, TensorClass::Attention).0, 0);
        assert!(has(Manage::All, TensorClass::Attention).0 > 0);
        assert!(managed(&model, Manage::None).is_empty());
        for (tensor, experts) in managed(&model, Manage::All).infos(&model) {
            assert!(
                tensor.size() >= MATRIX_MIN && tensor.name.ends_with(".weight") && tensor.shape.dims() >= 2
            );
            assert_eq!(experts.is_some(), tensor.name.contains("_exps"), "{}", tensor.name);
        }
    }
}

#[test]
fn operands_of_other_operations_stay_resident() {
    let mut b = models::Builder::new("qwen3next");
    b.add("blk.0.ssm_conv1d.weight", &[4, 8192], models::F32);
    b.add("blk.0.ssm_a", &[16, 8192], models::F32);
    b.add("blk.0.time_mix_lerp_fused.weight", &[4096, 1, 1, 5], models::F32);
    b.add("blk.0.ffn_up_exps.bias", &[4096, 32], models::F32);
    b.add("blk.0.attn_q_norm.weight", &[128, 128], models::F32);
    b.add("rope_freqs.weight", &[65536], models::F32);
    b.add("blk.0.ffn_gate_tid2eid.weight", &[8, 65536], (26, "i32", 1, 4));
    b.add("blk.0.attn_k_b.weight", &[128, 128, 2], models::F32);
    b.add("blk.0.attn_q.weight", &[128, 127], models::F32);
    b.add("blk.0.ssm_alpha.weight", &[128, 128], models::F32);
    b.add("per_layer_token_embd.weight", &[256, 65536], models::Q4_K);
    let model = b.build();
    let names: Vec<String> =
        managed(&model, Manage::All).infos(&model).map(|(t, _)| t.name.clone()).collect();
    assert_eq!(names, ["blk.0.attn_k_b.weight", "blk.0.ssm_alpha.weight", "per_layer_token_embd.weight"]);
}

/// A table of a layer takes no slot, and no RAM where memory does not hold everything.
#[test]
fn tables_of_layers_are_read_by_row() {
    let whole = |table: bool| {
        let mut b = models::Builder::new("qwen3moe").meta("block_count", 2).meta("embedding_length", 2048);
        b.add("token_embd.weight", &[2048, 151_936], models::Q4_K);
        b.add("blk.0.attn_q.weight", &[2048, 2048], models::Q4_K);
        if table {
            b.add("blk.1.engram_embd.weight", &[512, 1 << 27], models::Q8_0);
        }
        b.add("blk.1.ffn_up.weight", &[2048, 65_536], models::Q4_K);
        b.add("output.weight", &[2048, 151_936], models::Q6_K);
        b.build()
    };
    let (with, without) = (whole(true), whole(false));
    let table = "blk.1.engram_embd.weight";
    assert!(with.tensor(table).expect("a table").size() > ByteSize::gib(64));
    assert_eq!(minimum(&with, Manage::All), minimum(&without, Manage::All));
    let plan = planned(&with, Manage::All, minimum(&with, Manage::All));
    assert!(plan.read_by_row.iter().any(|name| name == table), "{:?}", plan.read_by_row);
    assert!(!plan.streamed.iter().any(|name| name == table));
    // What is decided without being asked.
    let plan = planned(&with, Manage::Auto, ByteSize::gib(2));
    assert!(plan.read_by_row.iter().any(|name| name == table), "{:?}", plan.read_by_row);
    assert!(plan.resident + plan.slots <= ByteSize::gib(2));
}

#[test]
fn modes() {
    let moe = models::qwen3_30b();
    let dense = models::dense_70b();
    let deepseek = models::deepseek();
    let budget = ByteSize::gib(8);
    assert_eq!(planned(&moe, Manage::Experts, budget).mode, Mode::ExpertStreaming);
    assert_eq!(planned(&moe, Manage::Ffn, budget).mode, Mode::ExpertStreaming);
    // All other tensors fit into this budget beside the slots, and are pinned.
    assert_eq!(planned(&moe, Manage::All, budget).mode, Mode::ExpertStreaming);
    let least = minimum(&moe, Manage::All);
    assert_eq!(planned(&moe, Manage::All, least).mode, Mode::MixedStreaming);
    let least = minimum(&deepseek, Manage::Ffn);
    assert_eq!(planned(&deepseek, Manage::Ffn, least).mode, Mode::MixedStreaming);
    assert_eq!(planned(&dense, Manage::Ffn, ByteSize::gib(12)).mode, Mode::DenseFfnStreaming);
    let resident = planned(&moe, Manage::None, ByteSize::gib(64));
    assert_eq!(
        (resident.mode, resident.resident, resident.slots),
        (Mode::FullResident, moe.size(), ByteSize::ZERO)
    );
    let json = serde_json::to_value(planned(&dense, Manage::Ffn, ByteSize::gib(12))).expect("serialises");
    assert_eq!((&json["mode"], &json["manage"]), (&"dense-ffn-streaming".into(), &"ffn".into()));
}

#[test]
fn auto_manages_as_little_as_it_must() {
    let chosen = |model: &ModelFile, budget| planned(model, Manage::Auto, budget).manage;
    let moe = models::deepseek();
    assert_eq!(chosen(&moe, moe.size()), Manage::None);
    let less = ByteSize(moe.size().bytes() - 1);
    assert_eq!(chosen(&moe, less), Manage::Experts);
    let experts = minimum(&moe, Manage::Experts);
    assert_eq!(chosen(&moe, experts), Manage::Experts);
    assert_eq!(chosen(&moe, experts - ByteSize(1)), Manage::Ffn);
    assert_eq!(chosen(&moe, minimum(&moe, Manage::Ffn) - ByteSize(1)), Manage::All);
    assert_eq!(
        minimum(&moe, Manage::Auto),
        minimum(&moe, Manage::All),
        "the error names the least that would do"
    );

    let dense = models::dense_70b();
    assert_eq!(chosen(&dense, ByteSize(dense.size().bytes() - 1)), Manage::Ffn);
    assert_eq!(chosen(&dense, ByteSize::gib(3)), Manage::All);
}

#[test]
fn what_fits_is_mapped_unless_reading_was_asked_for() {
    let auto = |model: &ModelFile, ram, mapping| {
        let request = Request { context: ByteSize::gib(1), mapping, ..Request::default() };
        let machine = Machine { ram_available: ram };
        let plan = plan(model, &machine, &request).expect("fits or streams");
        (plan.mode, plan.mapped, plan.populates(machine.ram_available))
    };
    let moe = models::qwen3_30b();
    // The reserve is 5 %, so a little more than 20/19 of the model and the context fit.
    let fits = ByteSize((moe.size() + ByteSize::gib(1)).bytes() / 19 * 20 + 20);
    assert_eq!(auto(&moe, fits, true), (Mode::Mapped, moe.size(), true));
    assert_eq!(auto(&moe, fits, false), (Mode::FullResident, ByteSize::ZERO, false));
    let less = fits - ByteSize::mib(1);
    assert_eq!(auto(&moe, less, true), (Mode::ExpertStreaming, ByteSize::ZERO, false));
    assert_eq!(auto(&models::dense_70b(), fits, true).0, Mode::DenseFfnStreaming);

    // A given budget leads to the same choice as an automatic one; an explicit choice is followed.
    let given = |manage, budget| {
        let request = Request { mapping: true, ..request(manage, budget) };
        plan(&moe, &BIG, &request).map(|plan| (plan.mode, plan.resident, plan.mapped, plan.budget))
    };
    let size = moe.size();
    assert_eq!(given(Manage::Auto, size), Ok((Mode::Mapped, ByteSize::ZERO, size, size)));
    assert_eq!(given(Manage::None, size), Ok((Mode::FullResident, size, ByteSize::ZERO, size)));
    let error =
        given(Manage::Mapped, size - ByteSize(1)).expect_err("a budget that mapped pages would exceed");
    assert!(matches!(&error, PlanError::BudgetTooSmall { minimum, .. } if *minimum == size), "{error}");
}

#[test]
fn more_than_memory_is_mapped_only_when_asked_and_with_a_warning() {
    let moe = models::qwen3_30b();
    let machine = Machine { ram_available: ByteSize::gib(8) };
    let request = Request { manage: Manage::Mapped, context: ByteSize::gib(1), ..Request::default() };
    let plan = plan(&moe, &machine, &request).expect("the page cache holds what it can");
    assert_eq!(
        (plan.mode, plan.mapped, plan.populates(machine.ram_available)),
        (Mode::Mapped, moe.size(), false)
    );
    assert!(
        plan.warnings[0].to_string().contains("7 GiB are left for the page cache"),
        "{:?}",
        plan.warnings
    );
    let enough = Machine { ram_available: moe.size() + ByteSize::gib(1) };
    let plan = self::plan(&moe, &enough, &request).expect("fits");
    assert!(plan.populates(enough.ram_available) && plan.warnings.is_empty(), "{:?}", plan.warnings);
    assert!(!plan.to_string().contains('\n') && plan.to_string().starts_with("fits in memory"), "{plan}");
}

#[test]
fn minima() {
    let moe = models::qwen3_30b();
    let experts = managed(&moe, Manage::Experts);
    let resident = moe.size() - experts.bytes(&moe);
    let slice = 2048 * 768 / 256 * 144;
    let eight = ByteSize(8 * slot_size(slice).bytes());
    assert_eq!(minimum(&moe, Manage::Experts), resident + eight);

    let error = plan(&moe, &BIG, &request(Manage::Experts, ByteSize::mib(1))).expect_err("far too small");
    let text = error.to_string();
    for part in ["1 MiB (1048576 bytes)", "8 experts of `blk.0.ffn_gate_exps.weight`", "the minimum is"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(text.contains(&(resident + eight).bytes().to_string()) && !text.contains('\n'), "{text}");
    let none =
        plan(&moe, &BIG, &request(Manage::None, ByteSize::gib(1))).expect_err("does not fit").to_string();
    assert!(none.contains("all of it for resident weights"), "{none}");

    // The embedding is only read by row if the output has its own matrix. The output is then the
    // largest matrix, which is leased while experts are read and evicted.
    let output = moe.tensor("output.weight").expect("has one").size();
    let all = managed(&moe, Manage::All);
    assert_eq!(minimum(&moe, Manage::All), moe.size() - all.bytes(&moe) + slot_size(output.bytes()) + eight);
    let mut tied = moe.clone();
    tied.tensors.retain(|t| t.name != "output.weight");
    let embedding = tied.tensor("token_embd.weight").expect("has one").size();
    let all = managed(&tied, Manage::All);
    assert_eq!(
        minimum(&tied, Manage::All),
        tied.size() - all.bytes(&tied) + slot_size(embedding.bytes()) + eight
    );
}

#[test]
fn slots_hold_any_hull() {
    for len in [1, 4095, 4096, 4097, 884_736] {
        for offset in [0u64, 1, 32, 4064, 4095] {
            let hull = (offset + len).next_multiple_of(4096) - offset / 4096 * 4096;
            assert!(
                hull <= slot_size(len).bytes() && slot_size(len).bytes() < len + 2 * 4096,
                "{len} at {offset}"
            );
        }
    }
}

#[test]
fn slots_are_capped_at_what_is_managed() {
    let moe = models::mixtral();
    let plan = planned(&moe, Manage::Experts, ByteSize::gib(500));
    let padding = plan.slots - plan.managed_bytes;
    let blocks = 32 * 3 * 8;
    assert!(padding.bytes() <= blocks * 2 * 4096 && padding.bytes() >= blocks * 4096, "{padding}");
    let small = planned(&moe, Manage::Experts, ByteSize::gib(6));
    assert_eq!(small.slots.bytes(), (ByteSize::gib(6) - small.resident).bytes() / 4096 * 4096);
}

#[test]
fn token_cycles_and_the_warning() {
    let moe = models::qwen3_30b();
    let cycle = ByteSize(48 * 8 * 3 * (2048 * 768 / 256 * 144));
    let resident = planned(&moe, Manage::Experts, ByteSize::gib(8)).resident;
    let enough = planned(&moe, Manage::Experts, resident + cycle + ByteSize(4096));
    assert_eq!((enough.token_cycle, enough.warnings.len()), (cycle, 0), "{:?}", enough.warnings);
    let short = planned(&moe, Manage::Experts, resident + cycle - ByteSize(4096));
    assert!(
        short.warnings[0].to_string().contains(&cycle.to_string())
            && short.warnings[0].to_string().contains("most are read again"),
        "{:?}",
        short.warnings
    );
    assert!(
        short.warnings.iter().any(|warning| warning.to_string().starts_with("slots of"))
            && !short.to_string().contains('\n')
    );

    // Dense matrices are read whole, the embedding table by row.
    let dense = models::dense_70b();
    let all = planned(&dense, Manage::All, ByteSize::gib(8));
    let table = dense.tensor("token_embd.weight").expect("has one").size();
    assert_eq!(all.token_cycle, all.managed_bytes - table);
}

#[test]
fn nothing_is_dropped_silently() {
    let dense = models::dense_70b();
    let plan_of = |manage| planned(&dense, manage, ByteSize::gib(64));
    let experts = plan_of(Manage::Experts);
    assert_eq!(experts.mode, Mode::FullResident);
    assert!(experts.warnings[0].to_string().contains("`experts`"), "{:?}", experts.warnings);
    assert!(plan_of(Manage::None).warnings.is_empty());

    let small = Machine { ram_available: ByteSize::gib(16) };
    let request = Request { context: ByteSize::gib(5), ..request(Manage::Ffn, ByteSize::gib(12)) };
    let plan = plan(&dense, &small, &request).expect("the user said so");
    let beyond = "the RAM budget is 11 GiB instead of 12 GiB";
    assert!(plan.warnings.iter().any(|w| w.to_string().contains(beyond)), "{:?}", plan.warnings);
}

#[test]
fn automatic_budgets() {
    let moe = models::qwen3_30b();
    let auto = |ram: ByteSize, context: ByteSize| {
        let request = Request { context, ..Request::default() };
        plan(&moe, &Machine { ram_available: ram }, &request)
    };
    assert_eq!(auto_reserve(ByteSize::gib(4)), ByteSize::mib(512));
    assert_eq!(auto_reserve(ByteSize::gib(100)), ByteSize::gib(5));

    let roomy = auto(ByteSize::gib(64), ByteSize::gib(1)).expect("fits");
    assert_eq!((roomy.mode, roomy.budget), (Mode::FullResident, moe.size()));

    let tight = auto(ByteSize::gib(8), ByteSize::gib(1)).expect("streams");
    assert_eq!((tight.mode, tight.budget), (Mode::ExpertStreaming, tight.resident + tight.slots));
    assert!(tight.auto_budget && tight.budget <= ByteSize::gib(8) - ByteSize::gib(1) - ByteSize::mib(512));
    assert!(tight.direct && tight.warnings.is_empty(), "{:?}", tight.warnings);

    let error = auto(ByteSize::gib(1), ByteSize::gib(2)).expect_err("no room");
    assert!(matches!(&error, PlanError::AutoNoRoom { left, .. } if *left == ByteSize::ZERO));
    let text = error.to_string();
    assert!(text.contains("of 1 GiB available, 2 GiB are for the context and 512 MiB stay free"), "{text}");
}

#[test]
fn the_page_cache_is_used_where_it_holds_the_model() {
    let moe = models::qwen3_30b();
    let direct = |ram| {
        let request = request(Manage::Experts, ByteSize::gib(4));
        plan(&moe, &Machine { ram_available: ram }, &request).expect("fits").direct
    };
    assert!(direct(ByteSize::gib(16)));
    assert!(!direct(ByteSize::gib(32)));
    assert!(!planned(&moe, Manage::None, ByteSize::gib(64)).direct);
}

#[test]
fn what_fits_beside_the_ring_is_pinned_evenly() {
    let dense = models::dense_70b();
    let least = planned(&dense, Manage::Ffn, minimum(&dense, Manage::Ffn));
    assert_eq!(least.pinned, ByteSize::ZERO);
    let plan = planned(&dense, Manage::Ffn, ByteSize::gib(24));
    let ffn = managed(&dense, Manage::Ffn).bytes(&dense);
    assert_eq!(plan.pinned + plan.managed_bytes, ffn);
    // All of the budget is used except for less than one matrix, and the slots hold four matrices.
    let largest = plan.managed.infos(&dense).map(|(t, _)| t.size()).max().expect("some are managed");
    assert!(
        plan.slots.bytes() >= 4 * largest.bytes() && plan.slots.bytes() < 6 * largest.bytes(),
        "{plan:#}"
    );
    // No run of eight layers has much more to read than another.
    let mut per_stretch = [0u64; 10];
    for (tensor, _) in plan.managed.infos(&dense) {
        per_stretch[tensor.layer().expect("FFN is in layers").index() / 8] += tensor.size().bytes();
    }
    let (fewest, most) = (per_stretch.iter().min().copied(), per_stretch.iter().max().copied());
    assert!(most.zip(fewest).is_some_and(|(most, fewest)| most < fewest + fewest / 3), "{per_stretch:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn more_budget_is_never_worse(which in 0usize..5, small in 0u64..(64 << 30), more in 0u64..(16 << 30)) {
        let model = models::all().swap_remove(which);
        let of = |budget| plan(&model, &BIG, &request(Manage::Auto, ByteSize(budget)));
        let (less, more) = (of(small), of(small + more));
        if let Ok(less) = &less {
            let more = more.expect("what works in little works in more");
            prop_assert!(more.managed_bytes <= less.managed_bytes);
            prop_assert!(more.resident >= less.resident);
        }
    }

    #[test]
    fn more_budget_pins_a_superset(which in 0usize..5, small in 0u64..(64 << 30), more in 0u64..(16 << 30)) {
        let model = models::all().swap_remove(which);
        for manage in [Manage::Ffn, Manage::All] {
            let of = |budget| plan(&model, &BIG, &request(manage, ByteSize(budget)));
            if let (Ok(less), Ok(more)) = (of(small), of(small + more)) {
                prop_assert!(more.managed.tensors.iter().all(|m| less.managed.tensors.contains(m)));
            }
        }
    }

    #[test]
    fn plans_keep_their_promises(
        which in 0usize..5,
        manage in prop::sample::select(vec![
            Manage::Experts, Manage::Ffn, Manage::All, Manage::None, Manage::Mapped, Manage::Auto,
        ]),
        mapping: bool,
        budget in prop::option::of(0u64..(64 << 30)),
        ram in 0u64..(64 << 30),
        context in 0u64..(4 << 30),
    ) {
        let model = models::all().swap_remove(which);
        let machine = Machine { ram_available: ByteSize(ram) };
        let ram_budget = budget.map_or(Budget::Auto, |b| Budget::Bytes(ByteSize(b)));
        let request = Request { manage, ram_budget, context: ByteSize(context), mapping };
        match plan(&model, &machine, &request) {
            Ok(plan) => {
                prop_assert!(plan.resident + plan.mapped + plan.slots <= plan.budget);
                prop_assert!(plan.minimum <= plan.budget);
                prop_assert_eq!(plan.resident + plan.mapped + plan.managed_bytes, model.size());
                prop_assert_eq!(plan.managed_bytes, plan.managed.bytes(&model));
                let nothing = matches!(plan.mode, Mode::FullResident | Mode::Mapped);
                prop_assert_eq!(nothing, plan.managed.is_empty());
                prop_assert_eq!(plan.mode == Mode::Mapped, plan.mapped == model.size());
                prop_assert!(plan.slots.bytes().is_multiple_of(4096));
                prop_assert!(plan.manage != Manage::Auto);
                if ram_budget == Budget::Auto && manage != Manage::Mapped {
                    prop_assert!(plan.budget + ByteSize(context) + auto_reserve(machine.ram_available) <= ByteSize(ram));
                }
                // A budget of exactly the minimum is enough.
                let least = Request { ram_budget: Budget::Bytes(plan.minimum), manage: plan.manage, ..request };
                prop_assert!(self::plan(&model, &machine, &least).is_ok());
            }
            Err(PlanError::BudgetTooSmall { budget, minimum, need }) => {
                prop_assert!(budget < minimum);
                prop_assert_eq!(minimum, need.minimum());
                let enough = Request { ram_budget: Budget::Bytes(minimum), ..request };
                // Mapped weights need no memory of their own.
                let fits = manage == Manage::Mapped || minimum + ByteSize(context) <= ByteSize(ram);
                prop_assert_eq!(self::plan(&model, &machine, &enough).is_ok(), fits);
            }
            Err(PlanError::AutoNoRoom { left, minimum, .. }) => {
                prop_assert!(left < minimum);
                let beyond = |budget| budget + ByteSize(context) > ByteSize(ram);
                let allowed = match ram_budget {
                    Budget::Auto => true,
                    Budget::Bytes(budget) => beyond(budget),
                };
                prop_assert!(allowed, "{:?}", ram_budget);
            }
            Err(error) => panic!("{error}"),
        }
    }
}
