//! `terrace perplexity --reload-loop`: repeats the measurement for as long as the model's files
//! change in between, or another program asks for it.

use super::PerplexityArgs;
use super::control::{Control, Status};
use super::driven::Driven;
use super::measure::Measure;
use super::reload_lines::{finds_something, reload, say_unused};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use terrace_cli::error::CliError;
use terrace_cli::hotswap_env::{self, CONTROL, HOTSWAP, STATUS};
use terrace_cli::term::{print_failure, say, signals};
use terrace_engine::{Engine, ReloadReport};

/// The variable that names the script; llama.cpp's hotswap patch reads the same one.
const SCRIPT: &str = "LLAMA_PERPLEXITY_PRE_RELOAD_SCRIPT";

/// The reload loop, as configured.
#[derive(Debug, PartialEq, Eq)]
pub enum ReloadLoop {
    /// Until nothing changes, with this shell command before each look.
    Script(Option<OsString>),
    /// Until another program ends it.
    Driven(Driven),
}

impl ReloadLoop {
    /// The loop that options or variables ask for. `None`: one measurement only.
    ///
    /// # Errors
    /// The options contradict each other.
    pub fn asked(args: &PerplexityArgs) -> Result<Option<Self>, CliError> {
        let set = |name: &str| terrace_cli::environment::var_os(name).filter(|value| !value.is_empty());
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
            for name in [SCRIPT, CONTROL].into_iter().filter(|name| set(name).is_some()) {
                tracing::warn!("{name} has no effect without --reload-loop or {HOTSWAP}=1");
            }
            return Ok(None);
        }
        if args.save_logits.is_some() {
            let hint = format!("leave out --save-logits, or --reload-loop and {HOTSWAP}");
            return usage("--save-logits saves one measurement, but --reload-loop makes many", &hint);
        }
        let script = args.pre_reload.clone().or_else(|| set(SCRIPT));
        let Some(control) = set(CONTROL) else { return Ok(Some(Self::Script(script))) };
        let Some(status) = set(STATUS) else {
            return usage(
                &format!("{CONTROL} needs {STATUS}: the program that writes commands waits for the state"),
                &format!("set {STATUS} to the path of a file"),
            );
        };
        if script.is_some() {
            tracing::warn!("the pre-reload script is not run: {CONTROL} is set");
        }
        Ok(Some(Self::Driven(Driven { control: Control::new(control), status: Status::new(status) })))
    }

    /// Measures until the loop ends. `model` is the model's file.
    ///
    /// # Errors
    /// `measure` fails, or two reloads in a row fail in the same way. A loop that another program drives goes
    /// on.
    pub fn run(self, engine: &mut Engine, model: &Path, measure: &mut Measure<'_>) -> Result<(), CliError> {
        say_unused(engine, model)?;
        match self {
            Self::Driven(driven) => driven.run(engine, measure),
            Self::Script(script) => with_script(script.as_deref(), engine, model, measure),
        }
    }
}

/// Reloads what has changed, measures, runs the script, reloads again, and repeats until nothing has
/// changed. Tensors that cannot be replaced keep their bytes.
fn with_script(
    script: Option<&OsStr>,
    engine: &mut Engine,
    model: &Path,
    measure: &mut Measure<'_>,
) -> Result<(), CliError> {
    let mut reloaded = reload(engine)?;
    for pass in 0.. {
        measure(engine, pass, &reloaded)?;
        let refused = std::mem::take(&mut reloaded.refused);
        reloaded = changed(script, engine, model)?;
        // What is refused again is nothing new.
        if !finds_something(&reloaded) && (reloaded.refused.is_empty() || reloaded.refused == refused) {
            break;
        }
    }
    Ok(())
}

/// Runs the script and reloads. If nothing could be reloaded, the script gets another chance, unless it has
/// changed nothing.
fn changed(script: Option<&OsStr>, engine: &mut Engine, model: &Path) -> Result<ReloadReport, CliError> {
    let mut last = None;
    loop {
        if let Some(script) = script {
            say!("executing pre-reload script: {}", script.display());
            run_script(script, model)?;
        }
        match reload(engine) {
            Ok(report) => return Ok(report),
            Err(error) if script.is_none() || last.as_ref() == Some(&error.to_string()) => return Err(error),
            Err(error) => {
                print_failure(&error);
                last = Some(error.to_string());
            }
        }
    }
}

/// Runs the script in this process's environment and folder, with the model's file in
/// `TERRACE_MODEL`, and waits for its end. Its stdout goes to stderr, since stdout is for
/// measurements. How it ends is said, and no reason to stop.
fn run_script(script: &OsStr, model: &Path) -> Result<(), CliError> {
    let mut command = match Path::new(script).is_file() {
        // Not divided at spaces in its path.
        true => Command::new(Path::new(".").join(script)),
        false => Command::new("sh"),
    };
    if !Path::new(script).is_file() {
        command.arg("-c").arg(script);
    }
    let status = command.env("TERRACE_MODEL", model).stdin(Stdio::null()).stdout(io::stderr()).status();
    // Ctrl-C reaches the script too.
    if signals::interrupted() {
        return Err(CliError::Interrupted);
    }
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => tracing::warn!("pre-reload script {}: {status}", script.display()),
        Err(error) => tracing::warn!("pre-reload script {}: {error}", script.display()),
    }
    Ok(())
}
