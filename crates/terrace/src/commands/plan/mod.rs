//! `terrace plan`: what would live where, and the expected speed, before anything is loaded.

mod args;
mod packing;
mod picture;
mod rates;
mod svg;

pub use args::PlanArgs;
pub use svg::escaped;

use crate::advice;
use crate::args::{EstimateArgs, FollowingArgs, OnOff, PlacementArgs, usual_lengths};
use crate::error::CliError;
use crate::source;
use crate::term::print;
use crate::user_dirs::user_dirs;
use crate::whole_file;
use packing::Packing;
use serde::Serialize;
use std::fmt::Write;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use terrace_engine::options::{
    CacheOptions, ComputeOptions, DraftOptions, DraftSource, EmbeddingOptions, IoOptions, PromptCacheOptions,
    RecordOptions, ReloadOptions, TestingOptions, VisionOptions,
};
use terrace_engine::{
    EngineError, Mode, Options, UsualLengths, check_mtp, draft_memory, drafts_pay, leave_out_mtp,
    measured_contexts, wishes_of,
};
use terrace_ggml::devices::rpc::add_rpc_server;
use terrace_ggml::devices::silence::give_up_after;
use terrace_host::pressure::Adapt;
use terrace_model::{ModelFile, MtpUse, printable};
use terrace_plan::advice::{Advice, advise, explain};
use terrace_plan::machine::PlanRate;
use terrace_plan::{MachineProfile, Plan, PlanError, Wishes};
use terrace_store::find_replicas;

/// What `--json` prints: the plan, which `--plan` reads, and the changes that would help.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    plan: &'a Plan,
    advice: &'a [Advice],
    packing: &'a Packing,
    rates: &'a [PlanRate],
}

/// Prints the plan of a model.
///
/// # Errors
/// A file of the model, the machine or the trace cannot be used, the machine has too little room,
/// or there is no such tensor.
pub fn plan(args: &PlanArgs) -> Result<(), CliError> {
    let header = source::header(&args.model)?;
    let mut model = terrace_ggml::gguf::read(header.path())?;
    if let Some(time) = args.placement.devices.rpc_timeout {
        give_up_after(time);
    }
    for endpoint in &args.placement.devices.rpc {
        add_rpc_server(endpoint)?;
    }
    let (machine, rates) = machine(args, &model)?;
    machine.check().map_err(PlanError::from)?;
    let mut wishes = wishes_of(&options(&args.placement, args.prompt)?);
    let machine = beside_drafts(args, header.path(), &mut model, machine, &wishes)?;
    let usual = usual_lengths(args.warm_start).and_then(|dir| UsualLengths::open(&dir, &model));
    wishes.expect(usual.and_then(|usual| usual.expected()));
    let measured = measured_contexts(header.path(), &model, &wishes, machine.memory.available);
    let wishes = Wishes { measured, ..wishes };
    if let Some(tensor) = &args.explain {
        return print(&explain(&model, &machine, &wishes, tensor)?);
    }
    let plan = terrace_plan::plan(&model, &machine, &wishes)?;
    if let Some(path) = &args.svg {
        whole_file::write(path, &svg::draw(&plan))?;
    }
    let packing = Packing::of(args, &model, &plan)?;
    let changes = advise(&model, &machine, &wishes, &plan)?;
    let text = if args.json {
        let report = Report { plan: &plan, advice: &changes, packing: &packing, rates: &rates };
        serde_json::to_string_pretty(&report).expect("a plan is plain data")
    } else {
        let colours =
            std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()) && std::io::stdout().is_terminal();
        let picture = picture::draw(&plan, colours);
        // A description from a file says itself where its rates come from.
        let rates = if args.machine.is_none() { rates::sentence(&rates) } else { String::new() };
        let warnings: String =
            plan.warnings.iter().map(|warning| format!("warning: {}\n", advice::warning(warning))).collect();
        let packing = packing.text();
        format!("{}{packing}{warnings}\n{picture}{}{rates}", plan.tables(), sentences(&changes))
    };
    print(&text)
}

/// The options that `run` would have, so that its plan is this one. `prompt` is expected where the
/// options do not say how long prompts are.
///
/// # Errors
/// The options contradict each other, or a trace cannot be read.
pub fn options(placement: &PlacementArgs, prompt: Option<u32>) -> Result<Options, CliError> {
    let PlacementArgs { memory, devices, hot, context, estimates, replicas } = placement;
    let expect_prompt = estimates.expect_prompt.or(prompt);
    let following = FollowingArgs { plan: None, adapt: Adapt::default() };
    // Plans are made for the policy of runs that are not told another one.
    let cache = CacheOptions::default();
    Ok(Options {
        chat_template: None,
        placement: memory.options(&following)?,
        devices: devices.options(),
        hot: hot.options(),
        context: context.options(),
        estimates: EstimateArgs { expect_prompt, ..estimates.clone() }.options(&cache.policy)?,
        // Those of `run` and `serve`, which leave room for theirs.
        adapters: Vec::new(),
        vision: VisionOptions::default(),
        // `run` embeds nothing, and keeps no conversations beside its context.
        embeddings: EmbeddingOptions::default(),
        prompt_cache: PromptCacheOptions::default(),
        // Options that plans do not depend on.
        model: PathBuf::new(),
        mode: Mode::default(),
        io: IoOptions { replicas: replicas.replica.clone(), ..IoOptions::default() },
        cache,
        compute: ComputeOptions::default(),
        drafts: DraftOptions::default(),
        record: RecordOptions::default(),
        reload: ReloadOptions::default(),
        user: user_dirs(),
        testing: TestingOptions::default(),
    })
}

/// Leaves out MTP layers that nothing drafts with, and takes the memory that drafts need off the machine's.
///
/// # Errors
/// The model has no such layers, the machine no such memory, or the draft model cannot be read.
fn beside_drafts(
    args: &PlanArgs,
    path: &Path,
    model: &mut ModelFile,
    machine: MachineProfile,
    wishes: &Wishes,
) -> Result<MachineProfile, CliError> {
    let without = |source: &DraftSource, model: &ModelFile| -> Result<MachineProfile, EngineError> {
        let mut left = machine.clone();
        let available = machine.memory.available;
        let needed = draft_memory(source, model, wishes, available)?;
        left.set_available(available.saturating_sub(needed));
        Ok(left)
    };
    let source = match (&args.draft, model.mtp_use()) {
        (DraftSource::Mtp, how) => check_mtp(how).map(|()| &DraftSource::Mtp).map_err(EngineError::from)?,
        (DraftSource::Auto, MtpUse::Drafts { .. }) => {
            let machine = without(&DraftSource::Mtp, model)?;
            let pays = terrace_plan::plan(model, &machine, wishes).is_ok_and(|plan| drafts_pay(&plan));
            if pays { &DraftSource::Mtp } else { &DraftSource::Auto }
        }
        (source, _) => source,
    };
    if *source != DraftSource::Mtp {
        leave_out_mtp(path, model);
    }
    Ok(without(source, model)?)
}

/// The machine to plan for, and its rates for this model.
fn machine(args: &PlanArgs, model: &ModelFile) -> Result<(MachineProfile, Vec<PlanRate>), CliError> {
    let mut machine = match &args.machine {
        None => {
            let mut machine = terrace_host::machine::machine_profile(model, &user_dirs());
            if args.placement.devices.rpc_probe == OnOff::On {
                terrace_host::machine::probe_workers(&mut machine, model, &user_dirs());
            }
            machine
        }
        Some(path) => described(path)?,
    };
    let replicas = find_replicas(model, &args.placement.replicas.replica).map_err(EngineError::from)?;
    terrace_host::machine::read_together(&mut machine, model, &replicas, &user_dirs());
    if let Some(available) = args.placement.memory.available_memory {
        machine.set_available(available);
    }
    let rates = rates::of(model, &machine);
    let Some(change) = &args.what_if else { return Ok((machine, rates)) };
    let changed = change.apply(&machine);
    let rates = rates::changed(&rates, rates::of(model, &changed));
    Ok((changed, rates))
}

/// The machine that a file describes.
///
/// # Errors
/// The file cannot be read, or is not a description.
pub fn described(path: &Path) -> Result<MachineProfile, CliError> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(CliError::io(&name))?;
    serde_json::from_str(&text).map_err(|error| CliError::Usage {
        message: format!("{name}: not a description of a machine: {}", printable(&error.to_string())),
        hint: "a description is JSON with version, name, cpu, memory, devices and storage".into(),
    })
}

fn sentences(advice: &[Advice]) -> String {
    let mut out = String::new();
    if advice.is_empty() {
        out.push_str("\nnone of the usual changes would make decoding 5 % faster\n");
    } else {
        out.push_str("\nwhat would help, the cheapest first\n");
    }
    for Advice { what, decode_tok_s, speedup } in advice {
        let _ = writeln!(out, "  {what}: {speedup:.1}x, {decode_tok_s:.2} tok/s");
    }
    out
}
