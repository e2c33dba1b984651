//! `terrace perplexity --reload-loop`: measures again and again, as long as the model's files change in between.

use super::PerplexityArgs;
use super::script_error::{ScriptError, ScriptFault};
use crate::error::CliError;
use crate::hotswap_env::{self, HOTSWAP};
use crate::term::signals;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use terrace_engine::{Engine, EngineError, ReloadReport};

/// The variable of the patch to llama.cpp that this loop comes from which says what it runs.
const SCRIPT: &str = "LLAMA_PERPLEXITY_PRE_RELOAD_SCRIPT";

/// The loop that was asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct ReloadLoop {
    script: Option<PathBuf>,
}

impl ReloadLoop {
    /// By options or variables; none: one measurement.
    ///
    /// # Errors
    /// Options that mean nothing together.
    pub fn asked(args: &PerplexityArgs) -> Result<Option<Self>, CliError> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let usage = |message: &str, hint: &str| {
            Err(CliError::Usage { message: message.to_owned(), hint: hint.to_owned() })
        };
        if !args.reload_loop && !hotswap_env::hotswap() {
            if args.pre_reload.is_some() {
                return usage(
                    "--pre-reload does nothing without --reload-loop",
                    "add --reload-loop, or leave it out",
                );
            }
            if set(SCRIPT).is_some() {
                tracing::warn!("{SCRIPT} does nothing without --reload-loop or {HOTSWAP}=1");
            }
            return Ok(None);
        }
        if args.save_logits.is_some() {
            let hint = format!("leave out --save-logits, or --reload-loop and {HOTSWAP}");
            return usage("--save-logits keeps one measurement, and --reload-loop makes many", &hint);
        }
        Ok(Some(Self { script: args.pre_reload.clone().or_else(|| set(SCRIPT).map(PathBuf::from)) }))
    }

    /// Takes what has changed, measures, runs the script, takes what has changed; and measures again until nothing has.
    /// `measure` is told the number of the measurement, from 0, and what was taken before it.
    ///
    /// # Errors
    /// A reload that is refused, a script that fails, those of `measure`.
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
                eprintln!("pre-reload script: {}", script.display());
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
        eprintln!("{report}");
    }
    Ok(report)
}

/// Runs the script to its end, in this process's environment and folder, and with the model's file in `TERRACE_MODEL`. What it
/// says goes to stderr: stdout is for measurements.
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
        // Ctrl-C reaches the script as well.
        false if signals::interrupted() => Err(CliError::Interrupted),
        false => Err(error(ScriptFault::Failed(status)).into()),
    }
}
