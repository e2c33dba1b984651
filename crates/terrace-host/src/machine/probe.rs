//! A quick probe of rates that a plan needs and that were never measured.

use super::kept_probe::{self, Found};
use super::lacking::Lacking;
use super::probe_round::measure;
use crate::cpu;
use std::sync::{Mutex, PoisonError};
use terrace_model::{ByteSize, ModelFile};
use terrace_plan::MachineProfile;
use terrace_store::UserDirs;

/// Least and most bytes of weights to go through: several times the caches, but few enough to be
/// filled in a fraction of the time.
const WEIGHTS: [ByteSize; 2] = [ByteSize::mib(64), ByteSize::mib(128)];

/// Facts known in this process: read from the user's file once, and added to by probes.
static KNOWN: Mutex<Option<Found>> = Mutex::new(None);

/// Adds the rates that the machine's description lacks for this model and that earlier probes have found.
pub fn fill_from_kept(machine: &mut MachineProfile, model: &ModelFile, user: &UserDirs) {
    let lacking = Lacking::of(machine, model);
    if lacking.is_nothing() {
        return;
    }
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    lacking.take(machine, known.get_or_insert_with(|| kept_probe::read(user)));
}

/// Adds the rates that the machine's description lacks for this model: from earlier probes, or from one of about 0.3 s.
/// While other programs take the processor, nothing is measured that could be kept, and what is neither known nor
/// measured stays a default whose source says so.
pub fn fill(machine: &mut MachineProfile, model: &ModelFile, user: &UserDirs) {
    let kernels = machine.cpu.kernels;
    let lacking = Lacking::of(machine, model).with(kernels);
    if lacking.is_nothing() {
        return;
    }
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_with(|| kept_probe::read(user));
    let missing = Lacking::of(machine, model).with(kernels).without(known);
    // On a machine with hardly any free memory even this much may be too much.
    let room = machine.memory.available.bytes() / 8;
    let mut busy = false;
    if !missing.is_nothing() && room >= WEIGHTS[0].bytes() {
        let [least, most] = WEIGHTS.map(ByteSize::bytes);
        let weights = ByteSize((4 * cpu::largest_cache()).clamp(least, most.min(room)));
        busy = !measure(known, machine.cpu.cores, weights, &missing);
        if !busy {
            kept_probe::keep(known, user);
        }
    }
    lacking.take(machine, known);
    if busy {
        missing.note_busy(machine);
    }
}

#[cfg(test)]
mod tests {
    use super::super::fast_rates::has_tokens;
    use super::super::kept_probe::{now, probed_at};
    use super::super::lacking::BUSY;
    use super::super::probe_round::Round;
    use super::*;
    use std::collections::BTreeMap;
    use terrace_ggml::quantize::WeightType;
    use terrace_plan::machine::AttentionRate;
    use terrace_plan::machine::{FastRates, Kernels, MatmulRate};

    fn rate(decode: f64) -> MatmulRate {
        MatmulRate { decode_bytes_per_s: Some(decode), ..MatmulRate::default() }
    }

    #[test]
    fn the_best_of_all_rounds_counts_for_each_rate() {
        let mut best = Round::default();
        for (bandwidth, overhead, decode) in [(2e10, 5e-6, 1e9), (1e10, 4e-6, 3e9)] {
            let matmul = BTreeMap::from([("q4_K".to_owned(), rate(decode))]);
            best.improve(Round {
                bandwidth: Some(bandwidth),
                overhead: Some(overhead),
                matmul,
                ..Round::default()
            });
        }
        assert_eq!((best.bandwidth, best.overhead), (Some(2e10), Some(4e-6)));
        assert_eq!(best.matmul["q4_K"], rate(3e9));
    }

    #[test]
    fn kept_rates_are_taken_with_their_date_and_age() {
        let dir = tempfile::tempdir().unwrap();
        let user = UserDirs { config: None, cache: Some(dir.path().into()) };
        let mut found = Found::default();
        let round = Round {
            bandwidth: Some(2e10),
            overhead: Some(5e-6),
            matmul: BTreeMap::from([("q4_K".to_owned(), rate(9e9))]),
            fast: FastRates {
                matmul: BTreeMap::from([("q4_K".to_owned(), rate(2e10))]),
                attention: Some(AttentionRate { token_flops: 1e11, prompt_flops: 2e11 }),
            },
        };
        round.note(&mut found, 2, 1_700_000_000);
        kept_probe::keep(&found, &user);
        let read = kept_probe::read(&user);
        let lacking = || Lacking {
            bandwidth: true,
            overhead: true,
            types: vec![WeightType::Q4_K, WeightType::F16],
            fast_types: vec![WeightType::Q4_K],
            fast_attention: true,
        };
        let mut machine = MachineProfile::unmeasured("m", 2, ByteSize::gib(8), ByteSize::gib(8));
        lacking().take(&mut machine, &read);
        assert_eq!((machine.memory_bandwidth(2), machine.host_decode_rate("q4_K")), (2e10, 9e9));
        assert_eq!(machine.sources["cpu.matmul.q4_K"], probed_at(1_700_000_000));
        assert!(!machine.cpu.matmul.contains_key("f16"));
        assert_eq!(machine.cpu.fast.matmul["q4_K"], rate(2e10));
        assert_eq!(machine.cpu.fast.attention.map(|rate| rate.prompt_flops), Some(2e11));
        assert_eq!(machine.sources["cpu.fast.attention"], probed_at(1_700_000_000));
        // Each class of kernels is measured where a run computes with it.
        let exact = lacking().with(Kernels::Exact);
        assert!(exact.fast_types.is_empty() && !exact.fast_attention && exact.types.len() == 2);
        let fast = lacking().with(Kernels::Fast);
        assert_eq!(fast.types.contains(&WeightType::Q4_K), !has_tokens(WeightType::Q4_K));
        // Old rates are measured again, and new ones are not.
        let missing = lacking().without(&read);
        assert!(missing.bandwidth && missing.overhead && missing.types.len() == 2);
        let mut found = Found::default();
        Round { matmul: BTreeMap::from([("q4_K".to_owned(), rate(9e9))]), ..Round::default() }.note(
            &mut found,
            2,
            now(),
        );
        assert_eq!(lacking().without(&found).types, [WeightType::F16]);
    }

    #[test]
    fn rates_that_cannot_be_are_not_taken_from_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let user = UserDirs { config: None, cache: Some(dir.path().into()) };
        let mut found = Found::default();
        Round { bandwidth: Some(-1.0), ..Round::default() }.note(&mut found, 2, now());
        kept_probe::keep(&found, &user);
        assert!(kept_probe::read(&user).bandwidth.is_none());
        std::fs::write(dir.path().join("probe.json"), "{\"format\": \"terrace-probe\"").unwrap();
        assert!(kept_probe::read(&user).bandwidth.is_none());
    }

    #[test]
    fn what_a_busy_machine_lacks_says_so() {
        let mut machine = MachineProfile::unmeasured("m", 2, ByteSize::gib(8), ByteSize::gib(8));
        machine.cpu.layer_overhead_s = Some(1e-5);
        let missing = Lacking {
            bandwidth: true,
            overhead: true,
            types: vec![WeightType::Q4_K],
            fast_types: Vec::new(),
            fast_attention: false,
        };
        missing.note_busy(&mut machine);
        assert_eq!(machine.sources.len(), 2, "{:?}", machine.sources);
        assert!(machine.sources.values().all(|source| source == BUSY));
        let rates = machine.plan_rates(&["q4_K"]);
        let source = |what: &str| rates.iter().find(|rate| rate.what == what).unwrap().source.clone();
        assert_eq!((source("memory"), source("q4_K decode")), (BUSY.into(), BUSY.into()));
    }
}
