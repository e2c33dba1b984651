//! `terrace plan`: what would live where, and how fast that should be, before anything is loaded.

mod args;
mod picture;
mod rates;
mod svg;

pub use args::PlanArgs;

use crate::args::OnOff;
use crate::error::CliError;
use crate::source;
use crate::term::print;
use serde::Serialize;
use std::fmt::Write;
use std::io::IsTerminal;
use terrace_engine::HeaderModel;
use terrace_model::ModelFile;
use terrace_plan::{
    Advice, MachineProfile, PlaceRequest, Placement, PlanRate, advise, auto_ubatch, context_tokens, explain,
    place,
};

/// What `--json` prints: the plan, which reads back, with what would help.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    placement: &'a Placement,
    advice: &'a [Advice],
    rates: &'a [PlanRate],
}

/// Prints the plan of a model.
///
/// # Errors
/// The model's, the profile's or the trace's file; a machine without room; a tensor that is not there.
pub fn plan(args: &PlanArgs) -> Result<(), CliError> {
    let header = source::header(&args.model)?;
    let model = terrace_ggml::gguf::read(header.path())?;
    let (machine, rates) = machine(args, &model)?;
    let tokens = context_tokens(&model, args.ctx);
    let ubatch = args.ubatch.unwrap_or_else(|| auto_ubatch(&model, tokens, machine.memory.available));
    let asked = HeaderModel::read(header.path());
    let request = PlaceRequest {
        ram_budget: args.ram_budget,
        context: Some(tokens),
        kv_type: args.kv_type,
        kv_offload: args.kv_offload == OnOff::On,
        ubatch,
        measured_context: asked.and_then(|model| model.context(tokens, args.kv_type, ubatch.min(tokens), 1)),
        prompt: args.prompt,
        hits: args.hits.curve()?,
        // What this machine is asked to do, `run` must be able to.
        hot_lanes: args.profile.is_some() || args.what_if.is_some(),
        ..PlaceRequest::default()
    };
    if let Some(tensor) = &args.explain {
        return print(&explain(&model, &machine, &request, tensor)?);
    }
    let placement = place(&model, &machine, &request)?;
    if let Some(path) = &args.svg {
        let name = path.display().to_string();
        std::fs::write(path, svg::draw(&placement)).map_err(CliError::io(name))?;
    }
    let advice = advise(&model, &machine, &request, &placement)?;
    let text = if args.json {
        let report = Report { placement: &placement, advice: &advice, rates: &rates };
        serde_json::to_string_pretty(&report).expect("a plan is plain data")
    } else {
        let colours =
            std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()) && std::io::stdout().is_terminal();
        let picture = picture::draw(&placement, colours);
        // What a file describes is in the file.
        let rates = if args.profile.is_none() { rates::sentence(&rates) } else { String::new() };
        format!("{placement}\n{picture}{}{rates}", sentences(&advice))
    };
    print(&text)
}

/// The machine that is asked about, and the rates that it gives this model.
fn machine(args: &PlanArgs, model: &ModelFile) -> Result<(MachineProfile, Vec<PlanRate>), CliError> {
    let machine = match &args.profile {
        None => terrace_host::machine::machine_profile(model),
        Some(path) => {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path).map_err(CliError::io(&name))?;
            serde_json::from_str(&text).map_err(|error| CliError::Usage {
                message: format!("{name} is no machine profile: {error}"),
                hint: "a profile is JSON with version, name, cpu, memory, devices and storage".into(),
            })?
        }
    };
    let rates = rates::of(model, &machine);
    let Some(change) = &args.what_if else { return Ok((machine, rates)) };
    let changed = change.apply(&machine);
    let rates = rates::changed(&rates, rates::of(model, &changed));
    Ok((changed, rates))
}

fn sentences(advice: &[Advice]) -> String {
    let mut out = String::new();
    if advice.is_empty() {
        out.push_str("\nnone of the usual changes would make it 5 % faster\n");
    } else {
        out.push_str("\nwhat would help, the cheapest first\n");
    }
    for Advice { what, decode_tok_s, speedup } in advice {
        let _ = writeln!(out, "  {what}: {speedup:.1}x, {decode_tok_s:.2} tok/s");
    }
    out
}
