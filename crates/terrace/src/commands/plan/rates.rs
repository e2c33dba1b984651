//! The rates that a plan is computed with, for people.

use std::collections::BTreeMap;
use terrace_cli::term::width::wrapped;
use terrace_model::ModelFile;
use terrace_plan::MachineProfile;
use terrace_plan::machine::PlanRate;

/// Types with a smaller share of the bytes hardly matter.
const TELLING_SHARE: f64 = 0.01;

/// The machine's rates for the model's types, those with the most bytes first.
pub fn of(model: &ModelFile, machine: &MachineProfile) -> Vec<PlanRate> {
    let mut bytes: BTreeMap<&str, u64> = BTreeMap::new();
    for tensor in &model.tensors {
        *bytes.entry(&tensor.ty.name).or_default() += tensor.extent.len;
    }
    let all: u64 = bytes.values().sum();
    let mut types: Vec<(&str, u64)> = bytes.into_iter().collect();
    types.retain(|(_, part)| *part as f64 >= all as f64 * TELLING_SHARE);
    types.sort_by_key(|(_, part)| std::cmp::Reverse(*part));
    let types: Vec<&str> = types.into_iter().map(|(ty, _)| ty).collect();
    machine.plan_rates(&types)
}

/// Sets the source of the rates that `--what-if` has changed.
pub fn changed(before: &[PlanRate], mut after: Vec<PlanRate>) -> Vec<PlanRate> {
    for rate in &mut after {
        if !before.iter().any(|old| old.what == rate.what && old.value == rate.value) {
            rate.source = "--what-if".into();
        }
    }
    after
}

/// Each source, with its rates, in at most `width` columns.
pub fn sentence(rates: &[PlanRate], width: usize) -> String {
    let mut sources: Vec<(&str, Vec<String>)> = Vec::new();
    for rate in rates {
        match sources.iter_mut().find(|(source, _)| *source == rate.source) {
            Some((_, all)) => all.push(rate.to_string()),
            None => sources.push((&rate.source, vec![rate.to_string()])),
        }
    }
    let mut out = String::from("\nrates used\n");
    for (source, rates) in sources {
        out += &wrapped(&format!("  {source}: {}", rates.join(", ")), width, "    ");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_plan::machine::Unit;

    #[test]
    fn rates_stand_with_their_source() {
        let rate = |what: &str, value, source: &str| PlanRate {
            what: what.into(),
            value,
            unit: Unit::Bytes,
            source: source.into(),
        };
        let before = [rate("memory", 1e10, "quick probe"), rate("disk", 3e9, "assumed")];
        let after = changed(&before, vec![before[0].clone(), rate("disk", 7e9, "default")]);
        assert_eq!(
            sentence(&after, 80),
            "\nrates used\n  quick probe: memory 10 GB/s\n  --what-if: disk 7.0 GB/s\n"
        );
    }
}
