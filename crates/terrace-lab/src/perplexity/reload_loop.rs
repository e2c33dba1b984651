//! `terrace perplexity --reload-loop`: repeats the measurement for as long as the model's files
//! change in between.

use super::PerplexityArgs;
use super::script_error::{ScriptError, ScriptFault};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use terrace_cli::error::CliError;
use terrace_cli::hotswap_env::{self, HOTSWAP};
use terrace_cli::term::say;
use terrace_cli::term::signals;
use terrace_engine::{Engine, EngineError, ReloadReport};

/// The variable that names the script; llama.cpp's hotswap patch reads the same one.
const SCRIPT: &str = "LLAMA_PERPLEXITY_PRE_RELOAD_SCRIPT";

/// The reload loop, as configured.
#[derive(Debug, PartialEq, Eq)]
pub struct ReloadLoop {
    script: Option<PathBuf>,
}

impl ReloadLoop {
    /// The loop that options or variables ask for. `None`: one measurement only.
    ///
    /// # Errors
    /// The options contradict each other.
    pub fn asked(args: &PerplexityArgs) -> Result<Option<Self>, CliError> {
        let set = |name| terrace_cli::environment::var_os(name).filter(|value| !value.is_empty());
        let usage = |message: &str, hint: &str| {
            Err(CliError::Usage { message: message.to_owned(), hint: hint.to_owned() })
        };
        if !args.reload_loop && !hotswap_env::hotswap() {
            if args.pre_reload.is_some() {
                return usage(
                    "--pre-reload has no effect without --reload-loop",
                    "add --reload-loop, or leave out --pre-reload",
                );
            }
            if set(SCRIPT).is_some() {
                tracing::warn!("{SCRIPT} has no effect without --reload-loop or {HOTSWAP}=1");
            }
            return Ok(None);
        }
        if args.save_logits.is_some() {
            let hint = format!("leave out --save-logits, or --reload-loop and {HOTSWAP}");
            return usage("--save-logits saves one measurement, but --reload-loop makes many", &hint);
        }
        Ok(Some(Self { script: args.pre_reload.clone().or_else(|| set(SCRIPT).map(PathBuf::from)) }))
    }

    /// Reloads what has changed, measures, runs the script, reloads again, and repeats until
    /// nothing has changed. `measure` gets the number of the measurement, from 0, and what was
    /// reloaded before it.
    ///
    /// # Errors
    /// A reload is refused, the script fails, or `measure` does.
    pub fn run(
        &self,
        engine: &mut Engine,
        model: &Path,
        measure: &mut dyn FnMut(&mut Engine, usize, &ReloadReport) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let mut reloaded = reload(engine)?;
        for pass in 0.. {
            measure(engine, pass, &reloaded)?;
            if let Some(script) = &self.script {
                say!("pre-reload script: {}", script.display());
                run_script(script, model)?;
            }
            reloaded = reload(engine)?;
            // A file that was written again with the same bytes is a reason to measure, too.
            if reloaded.is_empty() && reloaded.unchanged == 0 {
                break;
            }
        }
        Ok(())
    }
}

fn reload(engine: &mut Engine) -> Result<ReloadReport, CliError> {
    let report = engine.reload_changed().map_err(EngineError::from)?;
    if !report.is_empty() || report.unchanged > 0 {
        say!("{report}");
    }
    Ok(report)
}

/// Runs the script in this process's environment and folder, with the model's file in
/// `TERRACE_MODEL`, and waits for its end. Its stdout goes to stderr, since stdout is for
/// measurements.
fn run_script(script: &Path, model: &Path) -> Result<(), CliError> {
    let error = |fault| ScriptError { script: script.to_owned(), fault };
    let status = Command::new(script)
        .env("TERRACE_MODEL", model)
        .stdin(Stdio::null())
        .stdout(io::stderr())
        .status()
        .map_err(|source| error(ScriptFault::Start(source)))?;
    match status.success() {
        true => Ok(()),
        // Ctrl-C reaches the script too.
        false if signals::interrupted() => Err(CliError::Interrupted),
        false => Err(error(ScriptFault::Failed(status)).into()),
    }
}
