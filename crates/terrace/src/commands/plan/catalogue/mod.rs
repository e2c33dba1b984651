//! `terrace plan --catalogue`: which well-known models this machine runs, and how fast.

mod shape;
mod show;

pub use show::table;

use super::rates;
use serde::Serialize;
use shape::ModelShape;
use terrace_cli::term::progress::{self, MEASURING};
use terrace_host::machine::machine_profile;
use terrace_model::{ByteSize, ModelFile};
use terrace_plan::advice::WhatIf;
use terrace_plan::machine::{Kernels, PlanRate};
use terrace_plan::{MachineProfile, Plan, PlanError, Wishes, plan};
use terrace_store::UserDirs;

/// The change for the column of one more GiB.
const MORE_RAM: &str = "ram=+1GiB";

/// A model of the catalogue on a machine.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    pub model: String,
    /// Number of weights, in billions.
    pub parameters_b: f64,
    /// The type or mixture of its file.
    pub file_type: &'static str,
    /// Bytes of its weights.
    pub bytes: ByteSize,
    /// Source of the model's shape.
    pub source: String,
    #[serde(flatten)]
    pub run: Run,
}

/// The expected run.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "result")]
pub enum Run {
    /// It works.
    Runs {
        /// True if all weights stay in memory.
        fits: bool,
        decode_tok_s: f64,
        prefill_tok_s: f64,
        /// Milliseconds to the first token, the model loaded.
        ttft_ms: f64,
        /// Tokens of the prompt that this is for.
        prompt_tokens: u32,
        /// Decoding with one more GiB of RAM, as a multiple.
        with_more_ram: f64,
        /// Decoding with a second disk of the same speed, as a multiple.
        with_second_disk: f64,
    },
    /// It does not, for this reason.
    Refused { reason: String },
}

/// The machine and the wishes that the catalogue is planned for.
pub struct Asked<'a> {
    /// A description; `None`: this machine.
    pub machine: Option<&'a MachineProfile>,
    /// Changes to the machine.
    pub changes: Option<&'a WhatIf>,
    pub wishes: &'a Wishes,
    /// Folders with the rates of this machine.
    pub user: &'a UserDirs,
    /// The kernels that would compute.
    pub kernels: Kernels,
}

/// Plans all models of the catalogue. Returns the rates that the last one is planned with, too.
pub fn entries(asked: &Asked<'_>) -> (Vec<Entry>, Vec<PlanRate>) {
    let here = std::env::current_dir().unwrap_or_default();
    let with_header = |model: ModelShape| {
        let file = model.header(&here);
        (model, file)
    };
    let models: Vec<(ModelShape, ModelFile)> = ModelShape::all().into_iter().map(with_header).collect();
    let files = models.iter().map(|(_, file)| file);
    let machine = progress::patiently(MEASURING, || asked.machine_for(files));
    let entries = models.iter().map(|(model, file)| entry(model, file, &machine, asked.wishes)).collect();
    (entries, models.last().map(|(_, file)| rates::of(file, &machine)).unwrap_or_default())
}

impl Asked<'_> {
    /// The machine, with rates for the types of all models.
    fn machine_for<'f>(&self, mut files: impl Iterator<Item = &'f ModelFile>) -> MachineProfile {
        let mut machine = self.machine.cloned().unwrap_or_else(|| {
            let mut all = files.next().cloned().expect("the catalogue has models");
            all.tensors.extend(files.flat_map(|file| file.tensors.iter().cloned()));
            machine_profile(&all, self.user, self.kernels)
        });
        machine.cpu.kernels = self.kernels;
        self.changes.map_or_else(|| machine.clone(), |changes| changes.apply(&machine))
    }
}

fn entry(model: &ModelShape, file: &ModelFile, machine: &MachineProfile, wishes: &Wishes) -> Entry {
    let disk = machine.disk().sequential() * 2.0;
    let changed = |change: String| {
        let change: WhatIf = change.parse().expect("a change that is written here");
        plan(file, &change.apply(machine), wishes)
    };
    let run = match plan(file, machine, wishes) {
        Ok(now) => run(&now, changed(MORE_RAM.into()), changed(format!("nvme={disk:.0}B/s"))),
        Err(error) => Run::Refused { reason: error.to_string() },
    };
    Entry {
        model: model.name.clone(),
        parameters_b: model.parameters_b,
        file_type: model.mix.name(),
        bytes: file.size(),
        source: model.source.clone(),
        run,
    }
}

fn run(now: &Plan, more_ram: Result<Plan, PlanError>, second_disk: Result<Plan, PlanError>) -> Run {
    let Some(estimate) = &now.estimate else { return Run::Refused { reason: "it has no layers".into() } };
    let speedup = |then: Result<Plan, PlanError>| {
        let then = then.ok().and_then(|plan| plan.estimate).map_or(0.0, |then| then.decode_tok_s);
        (then / estimate.decode_tok_s * 100.0).round() / 100.0
    };
    Run::Runs {
        fits: now.managed_tensors == 0,
        decode_tok_s: estimate.decode_tok_s,
        prefill_tok_s: estimate.prefill_tok_s,
        ttft_ms: estimate.ttft_ms,
        prompt_tokens: estimate.prompt_tokens,
        with_more_ram: speedup(more_ram),
        with_second_disk: speedup(second_disk),
    }
}
