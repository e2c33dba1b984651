//! Properties of all plans, on random models and machines.

use super::choose::{Chosen, choose};
use super::complete::Outline;
use super::greedy::greedy;
use super::lp;
use crate::machine::{DeviceProfile, MachineProfile, StorageProfile, ThreadBandwidth};
use crate::model::class::TensorClass;
use crate::options::{Expected, ExpectedSource};
use crate::place::assignment::Assignment;
use crate::place::costs::Costs;
use crate::place::workload::{ContextLoad, ExpertLoad, LayerLoad, Matrix, Table, TypeLoad, Workload};
use crate::plan::planner::Planner;
use crate::wishes::{PrefillPaths, Wishes};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use terrace_model::KvTypes;
use terrace_model::{ByteSize, LayerId};

const MIB: u64 = 1 << 20;

/// A layer in MiB: its matrices, other dense weights, keys and values, and its experts (MiB each,
/// count, used).
#[derive(Clone, Debug)]
struct Layer {
    ffn: Vec<u64>,
    attention: Vec<u64>,
    rest: u64,
    cache: u64,
    experts: Option<(u64, u32, u32)>,
}

fn workload(layers: &[Layer], table: u64) -> Workload {
    let mut matrices = Vec::new();
    let mut loads = Vec::new();
    let types = |bytes: u64| vec![TypeLoad { ty: "q4_K".into(), bytes, elements: bytes * 16 / 9 }];
    for (index, layer) in layers.iter().enumerate() {
        let classes = [(&layer.ffn, TensorClass::DenseFfn), (&layer.attention, TensorClass::Attention)];
        for (sizes, class) in classes {
            for size in sizes {
                matrices.push(Matrix { tensor: matrices.len(), layer: index, class, bytes: size * MIB });
            }
        }
        let dense = (layer.ffn.iter().chain(&layer.attention).sum::<u64>() + layer.rest) * MIB;
        loads.push(LayerLoad {
            id: Some(LayerId(index as u32)),
            dense,
            dense_types: types(dense),
            cache: layer.cache * MIB,
            cache_read: layer.cache * MIB / 2,
            attention: 0,
            attended: 0,
            experts: layer.experts.map(|(size, count, top_k)| ExpertLoad {
                count,
                top_k,
                bytes: size * MIB * u64::from(count),
                types: types(size * MIB * u64::from(count)),
                slice: size * MIB / 3,
                least: size * MIB / 3 * u64::from(top_k),
            }),
        });
    }
    let mut sizes: Vec<u64> = matrices.iter().map(|m: &Matrix| m.bytes).collect();
    sizes.sort_unstable();
    Workload {
        usual: sizes.get(sizes.len() / 2).copied().unwrap_or(0),
        matrices: crate::place::workload::in_streaming_order(matrices),
        tables: vec![Table { tensor: 999, bytes: table * MIB, row: 4096 }],
        embd: 4096,
        vocab: 32_000,
        context: ContextLoad { tokens: 4096, kv_type: KvTypes::F16, compute: 8 * MIB, offload: true },
        experts: layers.iter().find_map(|l| l.experts.map(|(_, count, top_k)| (count, top_k))),
        layers: loads,
    }
}

fn machine(ram_mib: u64, disk_gb: f64, devices: &[(u64, f64)]) -> MachineProfile {
    // `ram_mib` is what remains after the reserve.
    let available = ByteSize::mib((ram_mib + 512).max(ram_mib * 20 / 19 + 1));
    let mut machine = MachineProfile::unmeasured("random", 8, available, available);
    machine.memory.bandwidth = vec![ThreadBandwidth { threads: 8, bytes_per_s: 40e9 }];
    machine.storage =
        vec![StorageProfile { sequential_bytes_per_s: Some(disk_gb * 1e9), ..StorageProfile::default() }];
    for &(mib, gb) in devices {
        // An eighth of a small device stays free.
        let memory = ByteSize(ByteSize::mib(mib).bytes() * 8 / 7 + 1);
        machine.devices.push(DeviceProfile {
            name: format!("gpu{}", machine.devices.len()),
            memory_total: memory,
            memory_free: memory,
            bandwidth_bytes_per_s: Some(gb * 1e9),
            ..DeviceProfile::default()
        });
    }
    machine
}

fn costs(work: &Workload, machine: &MachineProfile) -> Costs {
    costs_of(work, machine, &Wishes::default())
}

fn costs_of(work: &Workload, machine: &MachineProfile, wishes: &Wishes) -> Costs {
    Costs::of(work, machine, wishes, 512)
}

fn layer(dense: bool) -> impl Strategy<Value = Layer> {
    let sizes = |n| prop::collection::vec(4u64..40, n);
    let experts =
        (1u64..8, 4u32..32, 1u32..4).prop_map(move |(size, count, used)| (size * 3, count, used.min(count)));
    let experts = if dense { Just(None).boxed() } else { prop::option::weighted(0.9, experts).boxed() };
    (sizes(0..3), sizes(1..3), 1u64..4, 0u64..8, experts)
        .prop_map(|(ffn, attention, rest, cache, experts)| Layer { ffn, attention, rest, cache, experts })
}

fn model(dense: bool, layers: std::ops::Range<usize>) -> impl Strategy<Value = Workload> {
    (prop::collection::vec(layer(dense), layers), 0u64..100)
        .prop_map(|(layers, table)| workload(&layers, table))
}

fn any_model() -> impl Strategy<Value = Workload> {
    prop_oneof![model(true, 2..12), model(false, 2..12)]
}

/// A run of dense layers, then a run of layers with experts, as in real models.
fn even_model() -> impl Strategy<Value = Workload> {
    (layer(true), 0usize..4, layer(false), 6usize..24, 0u64..100).prop_map(
        |(first, few, other, many, table)| {
            let layers: Vec<Layer> = vec![first; few].into_iter().chain(vec![other; many]).collect();
            workload(&layers, table)
        },
    )
}

fn devices() -> impl Strategy<Value = Vec<(u64, f64)>> {
    prop::collection::vec((50u64..1500, 100f64..1500.0), 0..3)
}

/// The expected workload, and the use of devices in prefill.
fn wishes() -> impl Strategy<Value = Wishes> {
    (1u32..3000, 1u32..2000, prop::bool::ANY, prop::bool::ANY, prop::bool::ANY).prop_map(
        |(prompt, output, offload, streamed, copies)| Wishes {
            expected: Expected { prompt, output, source: ExpectedSource::Stated },
            paths: PrefillPaths { offload: offload.then_some(32), streamed, copies },
            ..Wishes::default()
        },
    )
}

/// Returns whether the layers in RAM come first and each device holds an uninterrupted run of the others,
/// which is all that llama.cpp can be told.
fn in_runs(homes: &[usize]) -> bool {
    let mut runs = homes.to_vec();
    runs.dedup();
    let mut once = runs.clone();
    once.sort_unstable();
    once.dedup();
    once.len() == runs.len() && runs.iter().skip(1).all(|&home| home > 0)
}

/// Tries every choice of homes that can be had, of streamed matrices and of tables; returns the least seconds.
fn brute_force(work: &Workload, costs: &Costs) -> Option<f64> {
    let places = costs.devices.len() + 1;
    let mut best: Option<f64> = None;
    for mut code in 0..places.pow(work.layers.len() as u32) {
        let mut base = Assignment::resident(work);
        for home in &mut base.homes {
            *home = code % places;
            code /= places;
        }
        if !in_runs(&base.homes) {
            continue;
        }
        for streamed in 0..1u32 << work.matrices.len() {
            for tables_streamed in [false, true] {
                let mut next = base.clone();
                for (index, s) in next.streamed.iter_mut().enumerate() {
                    *s = streamed >> index & 1 == 1;
                }
                next.tables_streamed = tables_streamed;
                if let Some(next) = next.with_leftover(work, costs) {
                    let seconds = next.seconds(work, costs);
                    best = Some(best.map_or(seconds, |least| least.min(seconds)));
                }
            }
        }
    }
    best
}

/// The same cases in every run: one of the bounds depends on rounding and is not exact.
fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 200,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_plan_fits_and_lies_between_the_bound_and_greedy(
        work in any_model(), ram in 20u64..4000, disk in 0.2..8.0f64, devices in devices(), wishes in wishes(),
    ) {
        let costs = costs_of(&work, &machine(ram, disk, &devices), &wishes);
        let greedy = greedy(&work, &costs);
        match choose(&work, &costs) {
            None => prop_assert!(greedy.is_none()),
            Some(chosen) => {
                prop_assert!(chosen.assignment.fits(&work, &costs));
                prop_assert!(in_runs(&chosen.assignment.homes), "{:?}", chosen.assignment.homes);
                prop_assert_eq!(chosen.assignment.seconds(&work, &costs), chosen.seconds);
                if let Some((_, least)) = greedy {
                    prop_assert!(chosen.seconds <= least);
                }
                let bound = chosen.bound.expect("the solver solves what fits");
                prop_assert!(bound <= chosen.seconds * (1.0 + 1e-6), "bound {}, {}", bound, chosen.seconds);
                let token = chosen.assignment.decode(&work, &costs).total;
                prop_assert!(chosen.decode_bound.expect("the solver solves what fits") <= token * (1.0 + 1e-6));
                prop_assert_eq!(choose(&work, &costs), Some(chosen), "deterministic");
            }
        }
    }

    #[test]
    fn small_dense_models_are_placed_as_brute_force_would(
        work in model(true, 1..4), ram in 20u64..300, disk in 0.2..8.0f64, devices in prop::collection::vec((20u64..200, 100f64..1500.0), 0..2),
    ) {
        let costs = costs(&work, &machine(ram, disk, &devices));
        prop_assume!(lp::is_small(&work, &costs));
        let best = brute_force(&work, &costs);
        let chosen = choose(&work, &costs);
        match (best, chosen) {
            (None, None) => {}
            (Some(best), Some(chosen)) => {
                prop_assert_eq!(chosen.planner, Planner::Exact);
                prop_assert!((chosen.seconds / best - 1.0).abs() < 1e-6, "{} instead of {}", chosen.seconds, best);
            }
            (best, chosen) => prop_assert!(false, "brute force: {:?}, planner: {:?}", best, chosen),
        }
    }

    #[test]
    fn small_expert_models_are_placed_as_brute_force_would(
        work in model(false, 1..4), ram in 20u64..900, disk in 0.2..8.0f64,
    ) {
        let costs = costs(&work, &machine(ram, disk, &[]));
        // What a cache hits has steps, so no program finds the best assignment for certain.
        let within = if work.experts.is_some() { 0.05 } else { 1e-6 };
        let best = brute_force(&work, &costs);
        let chosen = choose(&work, &costs);
        match (best, chosen) {
            (None, None) => {}
            (Some(best), Some(chosen)) => {
                prop_assert!((chosen.seconds / best - 1.0).abs() < within, "{} instead of {}", chosen.seconds, best);
            }
            (best, chosen) => prop_assert!(false, "brute force: {:?}, planner: {:?}", best, chosen),
        }
    }

    #[test]
    fn a_better_machine_never_has_a_worse_plan(
        work in any_model(), ram in 20u64..3000, disk in 0.2..8.0f64, more_ram in 0u64..500, faster in 1.0..3.0f64,
    ) {
        let (before, after) = (machine(ram, disk, &[]), machine(ram + more_ram, disk * faster, &[]));
        if let Some((before, after)) = both(&work, &before, &after) {
            prop_assert!(after.seconds <= before.seconds * (1.0 + 1e-9), "{} became {}", before.seconds, after.seconds);
        }
    }

    #[test]
    fn a_better_machine_with_devices_never_has_a_worse_plan_but_for_rounding(
        work in even_model(), ram in 20u64..3000, disk in 0.2..8.0f64, devices in devices(),
        more_ram in 0u64..500, faster in 1.0..3.0f64, more_memory in 0u64..300, wishes in wishes(),
    ) {
        let larger: Vec<_> = devices.iter().map(|&(mib, gb)| (mib + more_memory, gb)).collect();
        let (before, after) =
            (machine(ram, disk, &devices), machine(ram + more_ram, disk * faster, &larger));
        if let Some((before, after)) = both_of(&work, &before, &after, &wishes) {
            // The bound is exact; a plan has whole layers at home, and these models have few
            // layers.
            let bounds = (before.bound.unwrap_or(0.0), after.bound.unwrap_or(0.0));
            prop_assert!(bounds.1 <= bounds.0 * (1.0 + 1e-6), "{bounds:?}");
            let rounding = if devices.is_empty() { 1e-9 } else { 0.03 };
            prop_assert!(after.seconds <= before.seconds * (1.0 + rounding), "{} became {}", before.seconds, after.seconds);
        }
    }
}

/// Plans on two machines of which the second is better; `None` if there is no plan on the first.
fn both(work: &Workload, before: &MachineProfile, after: &MachineProfile) -> Option<(Chosen, Chosen)> {
    both_of(work, before, after, &Wishes::default())
}

fn both_of(
    work: &Workload,
    before: &MachineProfile,
    after: &MachineProfile,
    wishes: &Wishes,
) -> Option<(Chosen, Chosen)> {
    let before = choose(work, &costs_of(work, before, wishes))?;
    Some((before, choose(work, &costs_of(work, after, wishes)).expect("what fitted fits")))
}

#[test]
fn outlines_that_do_not_fit_are_none() {
    let layer = Layer { ffn: vec![10], attention: vec![10], rest: 1, cache: 1, experts: None };
    let work = workload(&vec![layer; 4], 10);
    let costs = costs(&work, &machine(95, 2.0, &[(30, 500.0)]));
    let outline =
        |layers, streamed| Outline { layers: vec![layers], hot: vec![0.0], streamed, tables_streamed: true };
    assert!(outline(0, 0).complete(&work, &costs).is_none(), "96 MiB in 95");
    assert!(outline(2, 0).complete(&work, &costs).is_none(), "44 MiB on a device with 30");
    assert!(outline(5, 0).complete(&work, &costs).is_none(), "more layers than there are");
    assert!(outline(1, 7).complete(&work, &costs).is_none(), "more matrices than there are");
    let found = outline(1, 2)
        .complete(&work, &costs)
        .unwrap_or_else(|| panic!("74 MiB less two matrices, and a ring of four"));
    assert_eq!(found.homes, [0, 0, 0, 1]);
}

#[test]
fn models_whose_layers_all_differ_are_planned_without_a_bound() {
    let layer = |size: u64| Layer {
        ffn: vec![size],
        attention: vec![10],
        rest: 1,
        cache: 1,
        experts: (size > 25).then_some((size, 16, 2)),
    };
    let work = workload(&(20..80).map(layer).collect::<Vec<_>>(), 10);
    let costs = costs(&work, &machine(9000, 2.0, &[(4000, 500.0), (3000, 900.0)]));
    let chosen = choose(&work, &costs).unwrap_or_else(|| panic!("it fits"));
    assert!(chosen.assignment.fits(&work, &costs));
    assert_eq!(chosen.bound, None);
    let (_, least) = greedy(&work, &costs).unwrap_or_else(|| panic!("it fits"));
    assert!(chosen.seconds <= least);
}

#[test]
fn layers_follow_the_link_to_workers() {
    let layer = Layer { ffn: vec![30], attention: vec![10], rest: 1, cache: 1, experts: None };
    let work = workload(&vec![layer; 16], 10);
    // Half of the model streams where no worker takes it.
    let on = |links: [(f64, f64); 2]| {
        let mut machine = machine(330, 2.0, &[(700, 20.0), (700, 20.0)]);
        for (device, (bytes_per_s, latency)) in machine.devices.iter_mut().zip(links) {
            device.address = Some("192.0.2.1:50052".into());
            device.h2d_bytes_per_s = Some(bytes_per_s);
            device.latency_s = Some(latency);
        }
        let chosen = choose(&work, &costs(&work, &machine)).unwrap_or_else(|| panic!("it fits"));
        [1, 2].map(|place| chosen.assignment.homes.iter().filter(|home| **home == place).count())
    };
    let (near, far) = ((1.1e9, 100e-6), (1e6, 0.4));
    assert_eq!(on([far, far]), [0, 0], "streaming is faster");
    let [first, second] = on([near, far]);
    assert!(first >= 8 && second == 0, "{first} {second}");
    let [first, second] = on([far, near]);
    assert!(first == 0 && second >= 8, "{first} {second}");
    let [first, second] = on([near, near]);
    assert!(first + second >= 8, "{first} {second}");
}
