//! Options that have no effect in a run, and why.
//!
//! `OPTIONS` lists every option of `EngineArgs` with what it needs; a test compares it with clap's list.
//! An option whose value is its default, or that switches something off that the run does not have, asks
//! for nothing and is left alone.

use crate::args::EngineArgs;
use clap::{ArgGroup, Args, Command};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use terrace_engine::options::HotOptions;
use terrace_engine::{Engine, HotPlan};
use terrace_ggml::devices::devices;
use terrace_model::ByteSize;
use terrace_plan::HotSplit;

/// Condition under which an option has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// Nothing, or whatever it needs is checked elsewhere.
    Nothing,
    /// That Terrace holds the weights, and not llama.cpp itself.
    Terrace,
    /// That Terrace reads weights, and does not map them.
    Reading,
    /// Slots: some weights stream.
    Slots,
    /// An accelerator that may be used.
    Accelerator,
    /// An accelerator that may be used, and that Terrace places weights.
    Placement,
    /// Copies of experts on accelerators.
    Copies,
    /// Copies of experts on accelerators, or experts that are sent there.
    Lanes,
    /// Slots or copies.
    SlotsOrCopies,
    /// A server of `--rpc`.
    Rpc,
}

impl Needs {
    /// Returns true if plain llama.cpp heeds such options.
    const fn is_met_by_stock(self) -> bool {
        matches!(self, Self::Nothing | Self::Rpc | Self::Accelerator)
    }
}

/// Conditions of the options of a group; a group that is not named has none.
const GROUPS: &[(&str, Needs)] = &[
    ("MemoryOptions", Needs::Terrace),
    ("DeviceOptions", Needs::Placement),
    ("HotOptions", Needs::Copies),
    ("EstimateOptions", Needs::Terrace),
    ("ReplicaOptions", Needs::Reading),
    ("FollowingOptions", Needs::Terrace),
    ("IoOptions", Needs::Reading),
    ("CacheOptions", Needs::Slots),
    ("LearnOptions", Needs::Terrace),
    ("KernelOptions", Needs::Terrace),
];

/// Options that need something else than the rest of their group. `hot-split` has reasons of its own
/// ([`warn_of_split`]), and for `n-gpu-layers` the plan warns.
const OPTIONS: &[(&str, Needs)] = &[
    ("mmap", Needs::Nothing),
    ("available-memory", Needs::Nothing),
    ("device", Needs::Terrace),
    ("n-gpu-layers", Needs::Nothing),
    ("op-offload", Needs::Accelerator),
    ("rpc", Needs::Nothing),
    ("rpc-timeout", Needs::Rpc),
    ("rpc-probe", Needs::Rpc),
    ("hot-split", Needs::Nothing),
    ("hot-lanes", Needs::Lanes),
    ("kv-offload", Needs::Accelerator),
    ("hits", Needs::Slots),
    ("adapt", Needs::Slots),
    ("warm-start", Needs::Terrace),
    ("learned", Needs::SlotsOrCopies),
    ("auto-learn", Needs::Nothing),
    ("warmup-prompt", Needs::Nothing),
];

/// The condition of an option.
fn needs(command: &Command, name: &str) -> Needs {
    let own = OPTIONS.iter().find(|(option, _)| *option == name);
    let id = name.replace('-', "_");
    let of_group = || {
        let has = |group: &&ArgGroup| group.get_args().any(|arg| arg.as_str() == id);
        let group = command.get_groups().find(has)?.get_id().as_str();
        GROUPS.iter().find(|(known, _)| *known == group)
    };
    own.or_else(of_group).map_or(Needs::Nothing, |(_, needs)| *needs)
}

/// The options of [`EngineArgs`].
fn engine() -> Command {
    EngineArgs::augment_args(Command::new("engine"))
}

/// Values that switch something off.
const OFF: [&str; 3] = ["off", "none", "0"];

/// Facts about a run on which options depend.
#[derive(Clone, Debug)]
struct Situation {
    /// llama.cpp itself holds the weights.
    stock: bool,
    mapped: bool,
    slots: bool,
    /// Why no accelerator can be used.
    no_accelerator: Option<&'static str>,
    /// Why no accelerator has copies.
    no_copies: Option<String>,
    /// Experts are sent to accelerators.
    sends: bool,
    rpc: bool,
}

impl Situation {
    fn of(engine: &Engine, args: &EngineArgs) -> Self {
        let plan = engine.plan();
        let given = &args.placement.devices;
        let all: Vec<_> = devices().into_iter().filter(|device| device.is_accelerator()).collect();
        let usable = |name: String| given.usable().is_none_or(|only| only.contains(&name));
        let no_accelerator = match (all.is_empty(), all.iter().any(|device| usable(device.name()))) {
            (true, _) => Some("there is no accelerator"),
            (false, false) => Some("--device leaves out all accelerators"),
            (false, true) => None,
        };
        let hot = plan.hot.as_ref();
        Self {
            stock: plan.placement.is_none(),
            mapped: plan.mode == "mapped",
            slots: plan.placement.as_ref().is_some_and(|placement| placement.slots > ByteSize::ZERO),
            no_accelerator,
            no_copies: hot.and_then(|hot| hot.inactive.clone()),
            sends: hot.is_some_and(|hot| !hot.transit.is_empty()),
            rpc: !given.rpc.is_empty(),
        }
    }

    /// Why an option that needs this has no effect; `None` if it has one.
    fn lacks(&self, needs: Needs) -> Option<String> {
        let no_slots = || match self.mapped {
            true => Some("all weights are mapped, and the kernel reads them".to_owned()),
            false => (!self.slots).then(|| "nothing streams, so there are no slots".to_owned()),
        };
        if self.stock && !needs.is_met_by_stock() {
            return Some("llama.cpp itself holds the weights".into());
        }
        match needs {
            Needs::Nothing | Needs::Terrace => None,
            Needs::Reading => self.mapped.then(no_slots).flatten(),
            Needs::Slots => no_slots(),
            Needs::Accelerator | Needs::Placement => self.no_accelerator.map(str::to_owned),
            Needs::Copies => self.no_copies.clone(),
            Needs::Lanes => self.no_copies.clone().filter(|_| !self.sends),
            Needs::SlotsOrCopies => no_slots()
                .zip(self.no_copies.as_ref())
                .map(|_| "nothing streams, and no accelerator has copies of experts".into()),
            Needs::Rpc => (!self.rpc).then(|| "no RPC server is used (--rpc)".into()),
        }
    }
}

/// Warns about each option of the command line and the environment that has no effect in this run.
pub fn warn(engine: &Engine, args: &EngineArgs) {
    let situation = Situation::of(engine, args);
    for (name, reason) in idle(&situation, args.words.given()) {
        tracing::warn!("--{name} has no effect: {reason}");
    }
}

/// Warns if `--hot-split` has no effect.
pub fn warn_of_split(hot: &HotOptions, plan: &HotPlan) {
    if hot.hot_split == HotSplit::Layers {
        return;
    }
    let given = hot.hot_cache.iter().any(|size| size.value.is_given());
    match (given, plan.inactive.as_ref().or(plan.whole.as_ref())) {
        (false, _) => tracing::warn!("--hot-split has no effect without a size for --hot-cache"),
        (true, Some(reason)) => tracing::warn!("--hot-split has no effect: {reason}"),
        (true, None) => {}
    }
}

/// The options that have no effect where llama.cpp itself holds the weights.
pub fn in_stock() -> Vec<String> {
    let command = engine();
    let names = command.get_arguments().filter_map(|option| option.get_long());
    names.filter(|name| !needs(&command, name).is_met_by_stock()).map(str::to_owned).collect()
}

/// The given options that have no effect, once each, and why.
fn idle<'a>(
    situation: &Situation,
    given: impl Iterator<Item = (&'a str, Option<&'a OsStr>)>,
) -> Vec<(&'a str, String)> {
    let command = engine();
    let is_default = |name: &str, value: &OsStr| {
        let option = command.get_arguments().find(|option| option.get_long() == Some(name));
        option.is_some_and(|option| {
            option.get_default_values().iter().any(|default| default.as_os_str() == value)
        })
    };
    let mut told = BTreeSet::new();
    let mut all = Vec::new();
    for (name, value) in given {
        if value.is_some_and(|value| OFF.iter().any(|off| value == *off) || is_default(name, value)) {
            continue;
        }
        if let Some(reason) = situation.lacks(needs(&command, name))
            && told.insert(name)
        {
            all.push((name, reason));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_groups_that_need_something_exist() {
        let command = engine();
        for (name, _) in OPTIONS {
            assert!(command.get_arguments().any(|option| option.get_long() == Some(name)), "--{name}");
        }
        for (name, _) in GROUPS {
            assert!(command.get_groups().any(|group| group.get_id() == *name), "{name}");
        }
        assert_eq!(
            (needs(&command, "queue-depth"), needs(&command, "threads")),
            (Needs::Reading, Needs::Nothing)
        );
    }

    #[test]
    fn what_a_run_lacks_is_said_once_and_defaults_ask_for_nothing() {
        let nothing = Situation {
            stock: false,
            mapped: false,
            slots: false,
            no_accelerator: Some("there is no accelerator"),
            no_copies: Some("no device has memory of its own".into()),
            sends: false,
            rpc: false,
        };
        let given = |words: &'static [(&'static str, &'static str)], situation: &Situation| {
            let words = words.iter().map(|(name, value)| (*name, Some(OsStr::new(*value))));
            idle(situation, words).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        let words = &[
            ("lookahead", "1MiB"),
            ("vram-reserve", "1GiB"),
            ("vram-reserve", "RPC0=2GiB"),
            ("hot-cache", "2MiB"),
            ("hot-lanes", "always"),
            ("rpc-timeout", "3"),
            ("queue-depth", "3"),
            ("threads", "2"),
        ];
        assert_eq!(
            given(words, &nothing),
            ["lookahead", "vram-reserve", "hot-cache", "hot-lanes", "rpc-timeout"]
        );
        let asks_for_nothing =
            &[("hot-cache", "off"), ("n-gpu-layers", "0"), ("lookahead", "auto"), ("rpc-probe", "off")];
        assert_eq!(given(asks_for_nothing, &nothing), [""; 0]);
        let mapped = Situation { mapped: true, ..nothing.clone() };
        assert_eq!(
            given(&[("queue-depth", "3"), ("slots-share", "50")], &mapped),
            ["queue-depth", "slots-share"]
        );
        let everything =
            Situation { slots: true, no_accelerator: None, no_copies: None, rpc: true, ..nothing.clone() };
        assert_eq!(given(words, &everything), [""; 0]);
        let stock = Situation { stock: true, ..everything };
        assert_eq!(
            given(words, &stock),
            ["lookahead", "vram-reserve", "hot-cache", "hot-lanes", "queue-depth"]
        );
    }
}
