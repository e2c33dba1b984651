//! `terrace experts`: learns, shows, compares, applies and converts uses of experts.

mod apply;
mod args;
mod diff;
mod grid;
mod learn;
mod svg;

pub use apply::described;
pub use args::ExpertsCommand;

use args::{ConvertArgs, DiffArgs, Format, ShowArgs};
use std::io::IsTerminal;
use terrace_cli::error::CliError;
use terrace_cli::source;
use terrace_cli::term::print;
use terrace_cli::whole_file;
use terrace_engine::EngineError;
use terrace_engine::learn as files;
use terrace_model::learn::Reported;
use terrace_store::HotList;

/// Runs the subcommand.
///
/// # Errors
/// A file cannot be read or written, is none of uses of experts, or is of another model; a server
/// refuses it.
pub fn experts(command: &ExpertsCommand, verbose: bool) -> Result<(), CliError> {
    match command {
        ExpertsCommand::Learn(args) => learn::learn(args, verbose),
        ExpertsCommand::Show(args) => show(args),
        ExpertsCommand::Diff(args) => diff(args),
        ExpertsCommand::Apply(args) => apply::apply(args),
        ExpertsCommand::Convert(args) => convert(args),
    }
}

fn show(args: &ShowArgs) -> Result<(), CliError> {
    let file = files::read(&args.file)?;
    if let Some(most) = args.list {
        let hottest = file.hottest().into_iter().take(most as usize);
        return print(&HotList(hottest.collect()).to_string());
    }
    let grid = grid::Grid::of(&file);
    if let Some(path) = &args.svg {
        whole_file::write_svg(path, &svg::draw(&grid, &title(args, &file)))?;
    }
    let colours = terrace_cli::environment::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
        && std::io::stdout().is_terminal();
    print(&format!("{}\n{}", title(args, &file), grid.text(colours)))
}

/// One line on the whole file.
fn title(args: &ShowArgs, file: &terrace_model::learn::LearnFile) -> String {
    let name =
        file.model.as_deref().map_or_else(|| args.file.display().to_string(), terrace_model::printable);
    let [hot, cold] = file
        .layers
        .iter()
        .map(terrace_model::learn::LearnLayer::totals)
        .fold([0u64; 2], |sum, part| [sum[0].saturating_add(part[0]), sum[1].saturating_add(part[1])]);
    let all = hot.saturating_add(cold);
    let on_devices = match hot {
        0 => String::new(),
        hot => format!(", {:.1} % of them on devices", hot as f64 / all as f64 * 100.0),
    };
    format!("{name}: {all} uses of experts in {} layers{on_devices}", file.layers.len())
}

fn diff(args: &DiffArgs) -> Result<(), CliError> {
    let [before, after] = [&args.before, &args.after].map(|path| files::read(path));
    let compared = diff::Comparison::of(&before?, &after?, args.top);
    print(&match args.json {
        true => serde_json::to_string(&compared).expect("numbers"),
        false => compared.to_string(),
    })
}

fn convert(args: &ConvertArgs) -> Result<(), CliError> {
    let mut file = files::read(&args.file)?;
    let model = match (&args.model, args.to) {
        (Some(model), _) => {
            let path = source::resolve(Some(model))?;
            Some(terrace_ggml::gguf::read(&path).map_err(EngineError::from)?)
        }
        (None, Format::Statistics) => {
            return Err(CliError::Usage {
                message: "statistics belong to one model, and none was given".into(),
                hint: "add --model MODEL".into(),
            });
        }
        (None, _) => None,
    };
    if let Some(model) = &model {
        files::check(&args.file, &file, model)?;
        file = files::named(file, model);
    }
    match (args.to, model) {
        (Format::Statistics, Some(model)) => files::write_record(&args.out, &model, &file)?,
        (to, _) => {
            file.mode = if to == Format::Counts { Reported::Update } else { Reported::Full };
            files::write(&args.out, &file)?;
        }
    }
    Ok(())
}
