//! `terrace quantize`.

mod args;
mod show;

pub use args::QuantizeArgs;

use args::Folders;
use indicatif::{ProgressBar, ProgressStyle};
use regex::Regex;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{MAIN_SEPARATOR, Path, PathBuf};
use terrace_cli::error::CliError;
use terrace_cli::source;
use terrace_cli::term::say;
use terrace_cli::term::{print, progress, signals};
use terrace_cli::user_dirs::user_dirs;
use terrace_ggml::gguf;
use terrace_model::ByteSize;
use terrace_quantize::{
    Disk, Fit, QuantizeError, QuantizeOptions, QuantizePlan, QuantizeProgress, Written, read_recipe,
};

/// Writes a model in other types, or prints what would be written.
///
/// # Errors
/// Errors of the model, the recipe or the importance matrix, all before anything is written; errors
/// of the disk.
pub fn quantize(args: &QuantizeArgs, verbose: bool) -> Result<(), CliError> {
    let mut options = options(args)?;
    let fit = args.fit.map(|size| fitted(&options, size)).transpose()?;
    if let Some(fit) = &fit {
        options.rules.clone_from(&fit.rules);
        options.file_type = fit.file_type;
    }
    let plan = QuantizePlan::new(&options).map_err(stopped)?;
    for warning in plan.warnings() {
        say!("warning: {}", terrace_model::printable(warning));
    }
    if args.dry_run
        && let Err(error) = plan.check()
    {
        say!("warning: {error}");
    }
    let written = match &args.out {
        Some(out) if !args.dry_run => {
            Some(signals::busy(|| write(args, &options.input, out, &plan)).map_err(stopped)?)
        }
        _ => None,
    };
    if args.json {
        return print(&show::json(args, &options, &plan, written.as_ref(), fit.as_ref())?.to_string());
    }
    print(&show::text(&plan, written.as_ref(), fit.as_ref(), verbose && args.dry_run)?)
}

/// Chooses types that fit, with a progress bar.
fn fitted(options: &QuantizeOptions, size: ByteSize) -> Result<Fit, CliError> {
    let style = ProgressStyle::with_template("trying types {wide_bar} {pos}/{len}, {eta} left");
    let bar = ProgressBar::with_draw_target(None, progress::target())
        .with_style(style.expect("a constant template"));
    let fit = signals::busy(|| {
        Fit::new(options, size, &mut |done, of| {
            bar.set_length(of as u64);
            bar.set_position(done as u64);
            if signals::interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    });
    bar.finish_and_clear();
    fit.map_err(stopped)
}

fn options(args: &QuantizeArgs) -> Result<QuantizeOptions, CliError> {
    let mut rules = args.tensor.clone();
    rules.extend(args.custom_q.iter().flat_map(|rules| rules.0.clone()));
    if let Some(recipe) = &args.recipe {
        rules.extend(read_recipe(recipe)?);
    }
    let input = source::resolve(Some(&args.model))?;
    let mut options = QuantizeOptions::new(input, args.file_type());
    options.rules = rules;
    options.imatrix.clone_from(&args.imatrix);
    options.include_weights.clone_from(&args.include_weights);
    options.exclude_weights.clone_from(&args.exclude_weights);
    options.leave_output = args.leave_output_tensor;
    options.output_type = args.output_tensor_type;
    options.embedding_type = args.token_embedding_type;
    options.metadata.clone_from(&args.override_kv);
    options.only = args.only.as_ref().map(|only| named(only, &options.input)).transpose()?;
    options.pure = args.pure;
    options.allow_requantize = args.allow_requantize;
    options.overwrite = args.overwrite;
    if let Some(threads) = args.threads {
        options.threads = threads as usize;
    }
    Ok(options)
}

/// The names of the model's tensors that match.
fn named(only: &Regex, model: &Path) -> Result<BTreeSet<String>, CliError> {
    let tensors = gguf::read(model)?.tensors;
    let names: BTreeSet<String> =
        tensors.into_iter().map(|tensor| tensor.name).filter(|name| only.is_match(name)).collect();
    match names.is_empty() {
        true => Err(CliError::Usage {
            message: format!("no tensor of {} matches `{only}`", model.display()),
            hint: "`--only exps` names the experts of a model".into(),
        }),
        false => Ok(names),
    }
}

/// Writes the model, with a progress bar.
fn write(
    args: &QuantizeArgs,
    input: &Path,
    out: &Path,
    plan: &QuantizePlan,
) -> Result<Written, QuantizeError> {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes}, {eta} left");
    let bar = ProgressBar::with_draw_target(None, progress::target())
        .with_style(style.expect("a constant template"));
    let mut show = |progress: &QuantizeProgress<'_>| {
        bar.set_length(progress.total.bytes());
        bar.set_position(progress.done.bytes());
        bar.set_message(format!("{} to {}", progress.tensor, progress.ty));
        if signals::interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let written = if args.split_tensors {
        plan.write_split(&prefix(args, input, out), &mut show)
    } else if let Some(Folders(folders)) = &args.shards_on {
        plan.write_on(&prefix(args, input, out), &disks(folders), &mut show)
    } else {
        plan.write(out, &mut show)
    };
    bar.finish_and_clear();
    written
}

/// The disks of these folders with their rates, as measured by iobench or an earlier load. Where one is unknown, all
/// count as equally fast.
fn disks(folders: &[PathBuf]) -> Vec<Disk> {
    let known = user_dirs().device_settings();
    let rate = |folder: &PathBuf| known.lookup(folder).map(|kept| kept.gbps).filter(|rate| *rate > 0.0);
    let rates: Vec<Option<f64>> = folders.iter().map(rate).collect();
    let unknown = folders.iter().zip(&rates).find(|(_, rate)| rate.is_none());
    if let Some((folder, _)) = unknown {
        say!(
            "warning: the read rate of the disk with {} is unknown, so all disks are treated as equally fast (`terrace iobench` measures it)",
            folder.display()
        );
    }
    let rate = |rate: &Option<f64>| rate.filter(|_| unknown.is_none()).unwrap_or(1.0);
    folders
        .iter()
        .zip(&rates)
        .map(|(folder, known)| Disk { folder: folder.clone(), rate: rate(known) })
        .collect()
}

/// The prefix of the names of a split model's files. In a folder, it consists of the model's name,
/// the type and, with one tensor per file, `SPECIAL_TENSOR`, by which such models are recognised.
fn prefix(args: &QuantizeArgs, input: &Path, out: &Path) -> PathBuf {
    let text = out.to_string_lossy();
    if out.is_dir() || text.ends_with(MAIN_SEPARATOR) {
        let stem = input.file_stem().unwrap_or_default().to_string_lossy();
        let mark = if args.split_tensors { "-SPECIAL_TENSOR" } else { "" };
        return out.join(format!("{stem}-{}{mark}", args.file_type()));
    }
    match out.extension() {
        Some(extension) if extension == "gguf" => out.with_extension(""),
        _ => out.to_owned(),
    }
}

fn stopped(error: QuantizeError) -> CliError {
    match error {
        QuantizeError::Cancelled => CliError::Interrupted,
        other => other.into(),
    }
}
