//! `terrace list`, `terrace pull` and `terrace rm`: models of the hub in its cache.

mod args;
mod show;

pub use args::{ListArgs, PullArgs, RmArgs};

use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use terrace_cli::error::CliError;
use terrace_cli::source::hub::{Hub, RemoteModel};
use terrace_cli::term::progress::{self, MEASURING};
use terrace_cli::term::{print, say, signals, width};
use terrace_cli::user_dirs::user_dirs;
use terrace_engine::{Options, PlannedMachine, plan_run};
use terrace_model::{ByteSize, ModelFile};

/// A downloaded model.
#[derive(Debug, Serialize)]
struct Downloaded {
    /// As MODEL names it.
    name: String,
    /// Its first file.
    path: PathBuf,
    /// Bytes of its weights.
    bytes: ByteSize,
    /// The type of most weights.
    quantisation: String,
    /// Place of the weights: the mode of its plan. Missing if this machine cannot run it.
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    /// Expected tokens per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    decode_tok_s: Option<f64>,
}

/// Prints the downloaded models, each with what it would run at on this machine.
///
/// # Errors
/// The cache cannot be found, or stdout not be written.
pub fn list(args: &ListArgs) -> Result<(), CliError> {
    let hub = Hub::from_environment()?;
    let models: Vec<Downloaded> =
        hub.downloaded().into_iter().filter_map(|(model, path)| describe(&model, path)).collect();
    match args.json {
        true => print(&serde_json::to_string_pretty(&models).expect("plain data")),
        false if models.is_empty() => {
            print("no models are downloaded; `terrace pull hf:owner/repo:TYPE` downloads one\n")
        }
        false => print(&show::table(&models, width::of_stdout())),
    }
}

/// Describes a model; `None` if its header cannot be read.
fn describe(model: &RemoteModel, path: PathBuf) -> Option<Downloaded> {
    let file = terrace_ggml::gguf::read(&path).ok()?;
    let options = Options { model: path.clone(), user: user_dirs(), ..Options::default() };
    let plan = progress::patiently(MEASURING, || plan_run(&options, PlannedMachine::default()));
    let plan = plan.ok().map(|planned| planned.plan);
    Some(Downloaded {
        name: format!("hf:{}:{}", model.id(), model.file.as_deref().unwrap_or_default()),
        bytes: file.size(),
        quantisation: most(&file),
        mode: plan.as_ref().map(|plan| plan.mode.to_string()),
        decode_tok_s: plan.as_ref().and_then(|plan| plan.estimate.as_ref()).map(|of| of.decode_tok_s),
        path,
    })
}

/// The type with the most bytes.
fn most(file: &ModelFile) -> String {
    let mut bytes = BTreeMap::<&str, u64>::new();
    for tensor in &file.tensors {
        *bytes.entry(&tensor.ty.name).or_default() += tensor.size().bytes();
    }
    bytes.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(name, _)| name.to_owned()).unwrap_or_default()
}

/// Downloads a model, and prints its path.
///
/// # Errors
/// Those of the hub.
pub fn pull(args: &PullArgs) -> Result<(), CliError> {
    let hub = Hub::from_environment()?;
    let path = signals::busy(|| hub.fetch(&hub.named(&args.model)?))?;
    print(&format!("{}\n", path.display()))
}

/// Deletes a downloaded model.
///
/// # Errors
/// It is not there, several are, or the cache cannot be written.
pub fn rm(args: &RmArgs) -> Result<(), CliError> {
    let hub = Hub::from_environment()?;
    let Some((model, files)) = hub.named_in_cache(&args.model)? else {
        return Err(CliError::Usage {
            message: format!("`{}` is not downloaded", args.model),
            hint: "`terrace list` lists downloaded models".into(),
        });
    };
    let size = |file: &PathBuf| std::fs::metadata(file).map_or(0, |file| file.len());
    let bytes: u64 = files.iter().map(size).sum();
    hub.remove(&model, &files)?;
    let name = files.first().and_then(|file| Path::new(file).file_name()).unwrap_or_default();
    say!("deleted {} of hf:{}: {}", name.display(), model.id(), ByteSize(bytes));
    Ok(())
}
