//! Changes that would make a plan faster, the cheapest first.

use super::what_if::WhatIf;
use crate::machine::MachineProfile;
use crate::options::{Budget, KvChoice, MemoryOptions};
use crate::plan::Plan;
use crate::planning::plan;
use crate::wishes::Wishes;
use serde::{Deserialize, Serialize};
use terrace_model::{KvType, KvTypes, ModelFile};

/// A change is listed if it speeds decoding up at least this much.
const WORTH: f64 = 1.05;
/// Most changes that are listed.
const CHANGES: usize = 3;

/// A change that would help.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// The change in words, such as `+4 GiB RAM`.
    pub what: String,
    /// Tokens per second after the change.
    pub decode_tok_s: f64,
    /// Ratio of that to the present rate.
    pub speedup: f64,
}

/// A possible change. They are ordered by cost: settings cost nothing; hardware is ordered roughly
/// by price in 2026 (memory about 5 per GiB, a faster drive about 100, an accelerator with 24 GB
/// about 800 units of money).
enum Try {
    Wishes(&'static str, fn(&Wishes) -> Option<Wishes>),
    Machine(&'static str, &'static str),
    FasterDisk,
}

const TRIES: [Try; 10] = [
    Try::Wishes("a KV cache of q8_0", |wishes| {
        let context = wishes.context.with_types(KvTypes::both(KvType::Q8_0));
        (wishes.context.kv_choice() == KvChoice::default()).then(|| Wishes { context, ..wishes.clone() })
    }),
    Try::Wishes("no RAM budget", |wishes| {
        let memory = MemoryOptions { ram_budget: Budget::Auto, ..wishes.memory.clone() };
        (wishes.memory.ram_budget != Budget::Auto).then(|| Wishes { memory, ..wishes.clone() })
    }),
    Try::Machine("+4 GiB RAM", "ram=+4GiB"),
    Try::Machine("+8 GiB RAM", "ram=+8GiB"),
    Try::Machine("+16 GiB RAM", "ram=+16GiB"),
    Try::FasterDisk,
    Try::Machine("+32 GiB RAM", "ram=+32GiB"),
    Try::Machine("+64 GiB RAM", "ram=+64GiB"),
    Try::Machine("a device with 24 GiB at 1 TB/s", "device=24GiB@1TB/s"),
    Try::Machine("+256 GiB RAM", "ram=+256GiB"),
];

/// Finds the three cheapest changes that help, each more than the ones before it. A change with which the
/// model cannot be planned does not help.
pub fn advise(model: &ModelFile, machine: &MachineProfile, wishes: &Wishes, now: &Plan) -> Vec<Advice> {
    // A written plan is the same on every machine.
    let (Some(now), None) = (&now.estimate, &wishes.written) else { return Vec::new() };
    let now = now.decode_tok_s;
    let mut found: Vec<Advice> = Vec::new();
    for change in TRIES {
        if found.len() == CHANGES {
            break;
        }
        let (what, machine, wishes) = match change {
            Try::Wishes(what, change) => match change(wishes) {
                Some(changed) => (what.to_owned(), machine.clone(), changed),
                None => continue,
            },
            Try::Machine(what, change) => {
                let change: WhatIf = change.parse().expect("a change that is written above");
                (what.to_owned(), change.apply(machine), wishes.clone())
            }
            Try::FasterDisk => {
                let rate = machine.disk().sequential() * 2.0;
                let change = format!("nvme={rate:.0}B/s").parse::<WhatIf>().expect("a rate in bytes");
                (format!("a disk with {:.1} GB/s", rate / 1e9), change.apply(machine), wishes.clone())
            }
        };
        let Ok(then) = plan(model, &machine, &wishes) else { continue };
        let Some(then) = then.estimate.map(|estimate| estimate.decode_tok_s) else { continue };
        let best = found.last().map_or(1.0, |advice| advice.speedup);
        let speedup = then / now;
        if speedup >= best * WORTH {
            found.push(Advice { what, decode_tok_s: then, speedup: (speedup * 100.0).round() / 100.0 });
        }
    }
    found
}
