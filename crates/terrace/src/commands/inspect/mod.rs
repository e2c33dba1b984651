//! `terrace inspect`.

mod args;
mod check;
mod tensors;

pub use args::InspectArgs;

use check::Report;
use terrace_cli::error::CliError;
use terrace_cli::source;
use terrace_cli::term::print;
use terrace_plan::model::Summary;

/// Prints what a model's header contains, and what is damaged in its weights if they are to be
/// checked. Returns whether nothing is.
///
/// # Errors
/// The header or the weights cannot be read, or stdout cannot be written.
pub fn inspect(args: &InspectArgs) -> Result<bool, CliError> {
    let path = source::resolve(Some(&args.model))?;
    let model = terrace_ggml::gguf::read(&path)?;
    let summary = Summary::of(&model);
    let report = args.check.then(|| Report::of(&model)).transpose()?;
    let text = match (args.json, &report) {
        (true, report) => {
            let mut value = serde_json::to_value(&summary).expect("a summary is plain data");
            if args.tensors {
                value["tensor_list"] = tensors::json(&model);
            }
            if let Some(report) = report {
                value["check"] = report.json();
            }
            serde_json::to_string_pretty(&value).expect("plain data")
        }
        (false, report) => {
            let mut text = summary.to_string().trim_end().to_owned();
            if args.tensors {
                text += "\n\n";
                text += tensors::table(&model).trim_end();
            }
            if let Some(report) = report {
                text += "\n\n";
                text += &report.text();
            }
            text
        }
    };
    print(&text)?;
    Ok(report.is_none_or(|report| report.is_clean()))
}
