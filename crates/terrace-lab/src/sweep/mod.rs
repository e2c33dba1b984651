//! `terrace sweep`.

mod args;
mod plot;
mod scratch;
mod show;

pub use args::SweepArgs;

use crate::perplexity::chunk_options;
use indicatif::{ProgressBar, ProgressStyle};
use scratch::Scratch;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use terrace_cli::error::CliError;
use terrace_cli::term::say;
use terrace_cli::term::{input, print, progress, signals};
use terrace_cli::whole_file;
use terrace_cli::written::{ASSIGN_TABLE, SVG, SWEEP_RECIPE, SWEEP_TABLE};
use terrace_cli::{loading, source};
use terrace_engine::Engine;
use terrace_eval::sweep::{
    Donor, EngineModel, Grouping, Header, Journal, MixRecord, Subjects, Sweep, SweepError, SweepProgress,
    TextIdentity, make_donor,
};
use terrace_eval::{BaseLogits, LogitsFile, PerplexityOptions, save_logits};
use terrace_ggml::llama::FileType;
use terrace_model::identity::ModelIdentity;
use terrace_model::{ByteSize, ModelFile};
use terrace_quantize::{QuantizeError, QuantizeOptions, QuantizePlan, QuantizeProgress, TypeRule};

/// Logits of the base that are kept in memory instead of being read again for each step.
const KEPT_LOGITS: ByteSize = ByteSize::mib(512);

/// The state of a sweep.
struct Swept {
    subjects: Subjects,
    donors: Vec<Donor>,
    journal: Journal,
    /// The measured mixes, the best first.
    mixes: Vec<MixRecord>,
}

/// Measures the cost of each tensor's type, and finds the best mix of types within a size.
///
/// # Errors
/// Errors of the model, the text, the donors or the disk. Earlier measurements are kept.
pub fn sweep(args: &SweepArgs, verbose: bool) -> Result<(), CliError> {
    if args.donor.is_empty() && args.types.is_empty() {
        return Err(CliError::Usage {
            message: "there is no donor to take tensors from".into(),
            hint: "give models of other types with --donor, or types to make with --type".into(),
        });
    }
    if args.csv_for_assign.is_some() && args.group == Grouping::Layer {
        return Err(CliError::Usage {
            message: "--csv-for-assign has a column for each tensor, but --group layer measures layers"
                .into(),
            hint: "leave out --group".into(),
        });
    }
    if args.testing.stock {
        return Err(CliError::Usage {
            message: "stock llama.cpp cannot replace tensors".into(),
            hint: "leave out --stock".into(),
        });
    }
    for (path, kind) in beside(args).iter().zip([&SWEEP_TABLE, &SVG, &SWEEP_RECIPE]) {
        kind.check(path).map_err(CliError::io(path.display().to_string()))?;
    }
    // Before the load, so that bad input costs no load.
    let text = input::file(&args.file)?;
    let path = source::resolve(Some(&args.model))?;
    let model = terrace_ggml::gguf::read(&path)?;
    let pattern = regex::Regex::new(&args.tensor).map_err(|error| CliError::Usage {
        message: format!("--tensor: {}", error.to_string().lines().last().unwrap_or_default().trim()),
        hint: "give a regular expression that matches tensors' names".into(),
    })?;
    let subjects = Subjects::of(&model, &pattern, args.group)?;
    let scratch = Scratch::beside(&args.out)?;
    let donors = donors(args, &path, &subjects, scratch.path())?;
    for donor in &donors {
        let lacking = subjects.0.iter().filter(|subject| donor.has(subject, &model).is_none()).count();
        if lacking > 0 {
            let all = subjects.0.len();
            say!(
                "warning: donor {}: {lacking} of {all} subjects are missing or have other shapes",
                donor.name
            );
        }
    }
    let copies = scratch.path().join("copies.gguf");
    let first = Subjects(vec![subjects.0[0].clone()]);
    make_donor(&path, None, &first, None, &copies, &mut |_| go_on()).map_err(stopped)?;

    let (adjust, options) = chunk_options(&args.engine, args.chunks);
    let announce = loading::Announce::of(verbose, args.json);
    let mut engine = loading::load(Some(&args.model), &args.engine, &args.testing, announce, adjust)?;
    let tokens = engine.tokenize(&text, true, false)?;
    let identity = TextIdentity::of(&tokens, options.context, options.chunks);
    let base = args.kld.as_ref().map(|path| path.display().to_string());
    let what = format!("{} by {}", args.tensor, args.group);
    let header = Header::new(ModelIdentity::of(&model), identity, base, what);
    let journal = Journal::open(&args.out, &header)?;

    let base = base_logits(args, &mut engine, &tokens, &options, scratch.path())?;
    let mut swept = Swept { subjects, donors, journal, mixes: Vec::new() };
    signals::busy(|| measure(args, &model, &copies, &mut engine, &tokens, options, base, &mut swept))?;
    report(args, &path, &model, &swept)
}

/// Opens the donors that exist, and makes the others.
fn donors(
    args: &SweepArgs,
    model: &Path,
    subjects: &Subjects,
    scratch: &Path,
) -> Result<Vec<Donor>, CliError> {
    let mut donors = Vec::new();
    for donor in &args.donor {
        donors.push(Donor::open(&donor.name, &donor.path)?);
    }
    let from = args.from.as_deref().unwrap_or(model);
    for &ty in &args.types {
        let path = scratch.join(format!("{}.gguf", ty.name()));
        let bar = bar("making {msg} {wide_bar} {percent} %, {eta} left");
        bar.set_message(ty.name());
        let mut show = |progress: &QuantizeProgress<'_>| {
            bar.set_length(progress.total.bytes());
            bar.set_position(progress.done.bytes());
            go_on()
        };
        let made =
            signals::busy(|| make_donor(from, Some(ty), subjects, args.imatrix.as_deref(), &path, &mut show));
        bar.finish_and_clear();
        for warning in made.map_err(stopped)? {
            say!("warning: donor {}: {}", ty.name(), terrace_model::printable(&warning));
        }
        donors.push(Donor::open(ty.name(), &path)?);
    }
    let name_of = |donor: &Donor| donor.name.clone();
    let mut names: Vec<String> = donors.iter().map(name_of).collect();
    names.sort();
    if let Some(twice) = names.windows(2).find(|two| two[0] == two[1]) {
        return Err(CliError::Usage {
            message: format!("two donors have the name `{}`", twice[0]),
            hint: "give them different names with --donor NAME=FILE".into(),
        });
    }
    Ok(donors)
}

/// The base that the model is compared with: a file, or the model itself as loaded.
fn base_logits(
    args: &SweepArgs,
    engine: &mut Engine,
    tokens: &[i32],
    options: &PerplexityOptions,
    scratch: &Path,
) -> Result<BaseLogits, CliError> {
    let path = match &args.kld {
        Some(path) => path.clone(),
        None => {
            let path = scratch.join("base.kld");
            let file = LogitsFile::create(&path)?;
            let bar = bar("base {wide_bar} chunk {pos}/{len}, {eta} left");
            let saved = signals::busy(|| {
                save_logits(engine, tokens, options, file, &mut |at| {
                    bar.set_length(at.chunks as u64);
                    bar.set_position(at.done as u64);
                    go_on()
                })
            });
            bar.finish_and_clear();
            saved?;
            path
        }
    };
    let mut base = BaseLogits::open(&path)?;
    base.keep_in_memory(KEPT_LOGITS)?;
    Ok(base)
}

/// Runs all steps that are not measured yet, then the mixes.
#[expect(clippy::too_many_arguments, reason = "everything that a sweep is made of, once")]
fn measure(
    args: &SweepArgs,
    model: &ModelFile,
    copies: &Path,
    engine: &mut Engine,
    tokens: &[i32],
    options: PerplexityOptions,
    base: BaseLogits,
    swept: &mut Swept,
) -> Result<(), CliError> {
    let bar = bar("{msg} {wide_bar} step {pos}/{len}");
    let mut show = |progress: &SweepProgress<'_>| {
        bar.set_length(progress.steps as u64);
        bar.set_position(progress.done as u64);
        bar.set_message(format!("{}, chunk {} of {}", progress.what, progress.chunk, progress.chunks));
        go_on()
    };
    let mut running = EngineModel::new(engine, tokens, options, base);
    let Swept { subjects, donors, journal, mixes } = swept;
    let mut sweep = Sweep { model, subjects, donors, copies, journal };
    let mut run = || {
        sweep.run(&mut running, &mut show)?;
        if let Some(budget) = args.budget {
            let candidates = sweep.candidates(budget, args.candidates as usize)?;
            *mixes = sweep.mixes(&candidates, &mut running, &mut show)?;
        }
        Ok::<_, SweepError>(())
    };
    let done = run();
    bar.finish_and_clear();
    Ok(done?)
}

/// Writes the files beside the journal and the model, and prints the tables.
fn report(args: &SweepArgs, path: &Path, model: &ModelFile, swept: &Swept) -> Result<(), CliError> {
    let [csv, svg, recipe] = beside(args);
    whole_file::write(&csv, &SWEEP_TABLE, &show::csv(swept))?;
    whole_file::write_svg(&svg, &plot::draw(swept, &model_name(path)))?;
    let mut files = vec![csv, svg];
    if let Some(out) = &args.csv_for_assign {
        whole_file::write(out, &ASSIGN_TABLE, &show::csv_for_assign(swept))?;
        files.push(out.clone().into());
    }
    if let (Some(best), Some(budget)) = (swept.mixes.first(), args.budget) {
        whole_file::write(&recipe, &SWEEP_RECIPE, &recipe_of(best, budget, swept))?;
        files.push(recipe);
        if let Some(out) = &args.write {
            write_model(path, out, best, swept)?;
            files.push(out.clone().into());
        }
    }
    if args.json {
        return print(&show::json(swept, model, &files).to_string());
    }
    print(&show::text(swept, model, &files))
}

/// The paths of the table, the plot and the recipe.
fn beside(args: &SweepArgs) -> [PathBuf; 3] {
    ["csv", "svg", "recipe"].map(|ending| args.out.with_extension(ending))
}

fn model_name(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Rules for `terrace quantize --recipe`, one line per tensor that changes.
fn recipe_of(best: &MixRecord, budget: ByteSize, swept: &Swept) -> String {
    let mut out = format!(
        "# the least divergence within {budget}: {:.6}\n# terrace quantize MODEL OUT --type COPY --recipe THIS\n",
        best.figures.kld
    );
    for (tensor, donor) in chosen(best, swept) {
        let ty =
            donor.model.tensor(tensor).and_then(|t| terrace_ggml::quantize::WeightType::from_id(t.ty.id));
        if let Some(ty) = ty {
            out.push_str(&TypeRule::of_tensor(tensor, ty).to_string());
            out.push('\n');
        }
    }
    out
}

/// The tensors that a mix changes, each with its donor.
fn chosen<'s>(mix: &'s MixRecord, swept: &'s Swept) -> impl Iterator<Item = (&'s str, &'s Donor)> {
    swept.subjects.0.iter().flat_map(|subject| {
        let name = mix.choice.get(&subject.name);
        let donor = name.and_then(|name| swept.donors.iter().find(|donor| donor.name == *name));
        subject.tensors.iter().filter_map(move |tensor| Some((tensor.as_str(), donor?)))
    })
}

/// Writes the model with the donors' tensors that were measured.
fn write_model(path: &Path, out: &Path, best: &MixRecord, swept: &Swept) -> Result<(), CliError> {
    let mut plan = QuantizePlan::new(&QuantizeOptions::new(path, FileType::COPY)).map_err(stopped)?;
    for (tensor, donor) in chosen(best, swept) {
        plan.take_from(tensor, &donor.model)?;
    }
    signals::busy(|| plan.write(out, &mut |_| go_on())).map_err(stopped)?;
    Ok(())
}

fn bar(template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("a constant template");
    ProgressBar::with_draw_target(None, progress::target()).with_style(style)
}

fn go_on() -> ControlFlow<()> {
    if signals::interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

fn stopped(error: QuantizeError) -> CliError {
    match error {
        QuantizeError::Cancelled => CliError::Interrupted,
        other => other.into(),
    }
}
