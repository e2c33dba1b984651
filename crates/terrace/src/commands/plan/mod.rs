//! `terrace plan`: what would live where, and the expected speed, before anything is loaded.

mod args;
mod catalogue;
mod packing;
mod picture;
mod quantisations;
mod rates;
mod requests;
mod svg;
mod workers;

pub use args::PlanArgs;
pub use svg::escaped;

use catalogue::Asked;
use packing::Packing;
use requests::Batches;
use serde::Serialize;
use std::fmt::Write;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use terrace_cli::advice;
use terrace_cli::args::TestingArgs;
use terrace_cli::error::CliError;
use terrace_cli::source;
use terrace_cli::term::progress::{self, MEASURING};
use terrace_cli::term::{print, say, width};
use terrace_cli::whole_file;
use terrace_engine::options::LearnOptions;
use terrace_engine::{LossyUsed, Options, Planned, PlannedMachine, kernels_of, plan_run, wishes_of};
use terrace_model::{parse_reason, printable};
use terrace_plan::advice::{Advice, advise, explain};
use terrace_plan::machine::PlanRate;
use terrace_plan::{MIN_WIDTH, MachineProfile, Plan, PlanError, TEXT_WIDTH, short_number};
use terrace_platform::input_file::{self, MAX_TEXT};

/// Output of `--json`: the plan, which `--plan` reads, and the changes that would help.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    plan: &'a Plan,
    advice: &'a [Advice],
    packing: &'a Packing,
    rates: &'a [PlanRate],
    #[serde(skip_serializing_if = "Option::is_none")]
    lossy: Option<&'a LossyUsed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workers: Option<&'a workers::Report>,
    #[serde(skip_serializing_if = "Option::is_none")]
    batches: Option<&'a Batches>,
}

/// Prints the plan of a model.
///
/// # Errors
/// A file of the model, the machine or the trace cannot be used, the machine has too little room,
/// or there is no such tensor.
pub fn plan(args: &PlanArgs) -> Result<(), CliError> {
    let described = args.machine.as_deref().map(described).transpose()?;
    if let Some(machine) = &described {
        machine.check().map_err(PlanError::from)?;
    }
    if args.engine.repack {
        return Err(CliError::Usage {
            message: "--repack leaves all weights to llama.cpp, which makes no plan".into(),
            hint: "plan without --repack".into(),
        });
    }
    let Some(model) = &args.model else { return catalogue(args, described) };
    if quantisations::compared(args, described.as_ref())? {
        return Ok(());
    }
    let header = source::header(model)?;
    let options = options(args, header.path().to_owned())?;
    let changes = args.what_if.as_ref();
    let machine = PlannedMachine { described: described.as_ref(), changes, probed: true };
    let planned = progress::patiently(MEASURING, || plan_run(&options, machine))?;
    let with_workers = workers::planned(&args.workers, &planned)?;
    let batches = args.requests.as_ref().map(|requests| Batches::of(requests, &planned)).transpose()?;
    let Planned { file: model, unchanged, machine, wishes, plan, lossy } = planned;
    let rates = match unchanged {
        Some(before) => rates::changed(&rates::of(&model, &before), rates::of(&model, &machine)),
        None => rates::of(&model, &machine),
    };
    if let Some(tensor) = &args.explain {
        return print(&explain(&model, &machine, &wishes, tensor)?);
    }
    if let Some(path) = &args.svg {
        let drawing = match &with_workers {
            Some(workers) => workers::draw(&printable(&plan.model.name), workers),
            None => svg::draw(&plan),
        };
        whole_file::write_svg(path, &drawing)?;
    }
    let packing = Packing::of(args, &model, &plan)?;
    let changes = advise(&model, &machine, &wishes, &plan);
    let text = if args.json {
        let report = Report {
            plan: &plan,
            advice: &changes,
            packing: &packing,
            rates: &rates,
            lossy: lossy.as_ref(),
            workers: with_workers.as_ref(),
            batches: batches.as_ref(),
        };
        serde_json::to_string_pretty(&report).expect("a plan is plain data")
    } else {
        let colours = terrace_cli::environment::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
            && std::io::stdout().is_terminal();
        let columns = width::of_stdout().clamp(MIN_WIDTH, TEXT_WIDTH);
        let picture = picture::draw(&plan, columns, colours);
        // A description from a file says itself where its rates come from.
        let rates = if args.machine.is_none() { rates::sentence(&rates, columns) } else { String::new() };
        let warnings: String =
            plan.warnings.iter().map(|warning| format!("warning: {}\n", advice::warning(warning))).collect();
        let packing = packing.text();
        let marks = lossy.iter().flat_map(|lossy| &lossy.marks);
        let lossy: String = marks.map(|mark| format!("{mark}\n")).collect();
        let workers = with_workers.map_or_else(String::new, |workers| workers.tables(columns));
        let batches = batches.as_ref().map_or_else(String::new, Batches::text);
        let headline = width::wrapped(&plan.to_string(), columns, "  ");
        let more = width::wrapped(&format!("{packing}{lossy}{warnings}"), columns, "  ");
        format!(
            "{headline}\n{}{more}\n{picture}{}{rates}{workers}{batches}",
            plan.tables(columns),
            width::wrapped(&sentences(&changes), columns, "    ")
        )
    };
    print(&text)
}

/// Prints what the machine would run well-known models at.
///
/// # Errors
/// The options contradict each other, or stdout fails.
fn catalogue(args: &PlanArgs, described: Option<MachineProfile>) -> Result<(), CliError> {
    let ignored = of_one_model(args);
    if !ignored.is_empty() {
        say!(
            "warning: without effect on --catalogue, whose models are planned as they are: {}",
            ignored.join(", ")
        );
    }
    let options = options(args, PathBuf::new())?;
    let asked = Asked {
        machine: described.as_ref(),
        changes: args.what_if.as_ref(),
        wishes: &wishes_of(&options),
        user: &options.user,
        kernels: kernels_of(&options),
    };
    let (entries, rates) = catalogue::entries(&asked);
    let columns = width::of_stdout().clamp(MIN_WIDTH, TEXT_WIDTH);
    // A description from a file says itself where its rates come from.
    let rates = if args.machine.is_none() { rates::sentence(&rates, columns) } else { String::new() };
    print(&match args.json {
        true => serde_json::to_string_pretty(&entries).expect("plain data"),
        false => width::wrapped(&catalogue::table(&entries, columns), columns, "  ") + &rates,
    })
}

/// Options that are given, and concern a model of the user's.
fn of_one_model(args: &PlanArgs) -> Vec<&'static str> {
    let (drafts, vision, engine) = (&args.drafts.given, &args.vision, &args.engine);
    let given = [
        ("--draft", drafts.draft.is_some() || args.drafts.draft_recorded.is_some()),
        ("--draft-max", drafts.draft_max.is_some()),
        ("--lora", !args.adapters.lora.is_empty()),
        ("--mmproj", vision.mmproj.is_some()),
        ("--image-min-tokens", vision.image_min_tokens.is_some()),
        ("--image-max-tokens", vision.image_max_tokens.is_some()),
        ("--learned", engine.learn.learned.is_some()),
        ("--plan", engine.following.plan.is_some()),
        ("--layer-skip", engine.compute.layer_skip.is_some()),
        ("--lossy", engine.compute.lossy.is_some()),
        ("--replica", !engine.placement.replicas.replica.is_empty()),
    ];
    given.into_iter().filter_map(|(option, given)| given.then_some(option)).collect()
}

/// The options that `run` would have, so that its plan is this one. What a run writes is not opened.
///
/// # Errors
/// The options contradict each other, or a trace cannot be read.
fn options(args: &PlanArgs, model: PathBuf) -> Result<Options, CliError> {
    let options = args.engine.options(model, &TestingArgs::default())?;
    Ok(Options {
        drafts: args.drafts.options(&args.engine.presets)?,
        adapters: args.adapters.all(true),
        vision: args.vision.clone(),
        learn: LearnOptions { learn_to: None, auto_learn: false, ..options.learn },
        ..options
    })
}

/// The machine that a file describes.
///
/// # Errors
/// The file cannot be read, or is not a description.
pub fn described(path: &Path) -> Result<MachineProfile, CliError> {
    let name = path.display().to_string();
    let text = input_file::read_text(path, MAX_TEXT).map_err(CliError::io(&name))?;
    serde_json::from_str(&text).map_err(|error| CliError::Usage {
        message: format!("{name}: not a description of a machine: {}", parse_reason(&error)),
        hint: "a description is JSON with version, name, cpu, memory, devices and storage".into(),
    })
}

fn sentences(advice: &[Advice]) -> String {
    let mut out = String::new();
    if advice.is_empty() {
        out.push_str("\nno common change would make decoding 5 % faster\n");
    } else {
        out.push_str("\nwhat would help, cheapest first\n");
    }
    for Advice { what, decode_tok_s, speedup } in advice {
        let _ = writeln!(out, "  {what}: {speedup:.1}x, {} tokens/s", short_number(*decode_tok_s));
    }
    out
}
