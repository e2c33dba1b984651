//! Runs GGUF models that do not fit in memory.
//!
//! Data flow: [`config`] combines the layers of configuration into a command line, [`terrace_cli::source`] turns
//! MODEL into a file (downloading it from a hub if necessary), and one module of [`commands`] per
//! subcommand, here or in [`terrace_lab`], drives the engine. Text goes to stdout; everything about the run - progress,
//! warnings, errors - goes to stderr.

#![cfg_attr(fuzzing, no_main)]
#![cfg_attr(fuzzing, allow(dead_code, reason = "the target `command_line` has another `main`"))]
#![allow(clippy::result_large_err, reason = "an error ends the command, so it is made once")]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make the files that they read"))]

mod backends;
mod cli;
mod commands;
mod config;
#[cfg(fuzzing)]
mod fuzzing;
mod help;
mod open_files;

#[cfg(test)]
mod named_files;
mod watch;

use clap::CommandFactory;
use clap::error::ContextKind;
use cli::{Cli, Command};
use commands::experts::ExpertsCommand;
use commands::serve::{Handed, LogFormat, ServeArgs, has_the_parents_words};
use commands::{
    attach, batch, completions, doctor, experts, inspect, list, llama, man, plan, run, serve, top, worker,
};
use config::ParseError;
use std::io::{ErrorKind, IsTerminal};
use std::process::ExitCode;
use terrace_cli::advice;
use terrace_cli::error::CliError;
use terrace_cli::term::messages::{self, Log};
use terrace_cli::term::{one_line, print_failure, say, signals};
use terrace_lab::{bench, calibrate, iobench, machine, optimize, perplexity, quantize, sweep, trace};
use tracing_subscriber::EnvFilter;

#[cfg(test)]
use terrace_test_env as _;

fn main() -> ExitCode {
    if let Some(code) = terrace_engine::enter_chat_worker() {
        return code;
    }
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or_else(String::new, |at| format!(" ({}:{})", at.file(), at.line()));
        let message = panic.payload_as_str().unwrap_or("no message").lines().next().unwrap_or_default();
        say!("error: internal: {message}{place}\nhint: this is a bug in terrace; please report it");
        // Some panics end the process.
        messages::flush();
    }));
    terrace_ggml::llama::print_last_with(|text| {
        say!("{text}");
        messages::flush();
    });
    // The hook has already printed the message.
    let ended = std::panic::catch_unwind(run_command).unwrap_or(ExitCode::FAILURE);
    let code = signals::finish(ended);
    messages::flush();
    code
}

fn run_command() -> ExitCode {
    let (cli, warnings) = match config::parse(std::env::args_os().collect()) {
        Ok(parsed) => parsed,
        Err(ParseError::Clap(error)) => return explain(&error),
        Err(ParseError::Config(error)) => return fail(&error),
    };
    if let Command::Serve(_) | Command::Worker(_) = &cli.command {
        // Clients must not wait for whoever reads the log.
        messages::start_queue();
    }
    start_logging(cli.verbose, log_format(&cli.command));
    for warning in warnings.into_iter().filter(|_| !has_the_parents_words()) {
        // A remark on an option that is obeyed warns of nothing.
        let kind = if warning.starts_with("note: ") { "" } else { "warning: " };
        // Names of variables and keys may be anything.
        say!("{kind}{}", one_line(&warning));
    }
    if let Err(error) = cli.written.check() {
        return fail(&error);
    }
    let handed = match &cli.command {
        Command::Serve(args) => match hand_over(args) {
            Ok(Either::Parent(code)) => return code,
            Ok(Either::Engine(handed)) => handed,
            Err(error) => return fail(&error),
        },
        _ => None,
    };
    signals::install();
    // Before anything computes, or talks to a server.
    terrace_ggml::llama::report_in_one_line();
    terrace_backend::FileMaps::advise_on_failure(advice::MAPPED_FILE_FAILED);
    terrace_host::machine::StoredProfile::advise_on_stale(advice::STALE_MACHINE);
    open_files::allow_many();
    if uses_devices(&cli.command)
        && let Err(error) = backends::load()
    {
        return fail(&error);
    }
    let result = match &cli.command {
        Command::Run(args) => run::run(args, cli.verbose > 0),
        Command::Serve(args) => serve::serve(args, handed, cli.verbose > 0),
        Command::Batch(args) => batch::batch(args, cli.verbose > 0),
        Command::Llama(args) => llama::llama(args, cli.config.as_deref()),
        Command::Attach(args) => attach::attach(args),
        Command::Inspect(args) => match inspect::inspect(args) {
            Ok(true) => Ok(()),
            // The damage has been printed.
            Ok(false) => return ExitCode::FAILURE,
            Err(error) => Err(error),
        },
        Command::Plan(args) => plan::plan(args),
        Command::Bench(args) => bench::bench(args),
        Command::Optimize(args) => optimize::optimize(args),
        Command::Perplexity(args) => perplexity::perplexity(args, cli.verbose > 0),
        Command::Calibrate(args) => calibrate::calibrate(args, cli.verbose > 0),
        Command::Quantize(args) => quantize::quantize(args, cli.verbose > 0),
        Command::Sweep(args) => sweep::sweep(args, cli.verbose > 0),
        Command::Trace(command) => {
            trace::trace(command, |args, file| run::record(args, cli.verbose > 0, Some(file)))
        }
        Command::Experts(command) => experts::experts(command, cli.verbose > 0),
        Command::Top(args) => top::top(args),
        Command::Iobench(args) => iobench::iobench(args),
        Command::Machine(args) => machine::machine(args),
        Command::Worker(args) => worker::worker(args),
        Command::List(args) => list::list(args),
        Command::Pull(args) => list::pull(args),
        Command::Rm(args) => list::rm(args),
        Command::Completions(args) => completions::completions(args, Cli::command()),
        Command::Man(args) => man::man(args, Cli::command()),
        Command::Doctor(args) => match doctor::doctor(args) {
            Ok(true) => Ok(()),
            // The findings have been printed.
            Ok(false) => return ExitCode::FAILURE,
            Err(error) => Err(error),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

/// Role of this process for a server.
enum Either {
    /// The one that the user started, which has ended.
    Parent(ExitCode),
    /// The one that has the engine, with what its parent handed over, if it has one.
    Engine(Option<Handed>),
}

/// Starts the engine of a server with RPC servers in a process of its own, and waits for its end.
fn hand_over(args: &ServeArgs) -> Result<Either, CliError> {
    match Handed::take()? {
        Some(handed) => Ok(Either::Engine(Some(handed))),
        None if args.engine.placement.devices.rpc.is_empty() || args.has_several() || args.unloads() => {
            Ok(Either::Engine(None))
        }
        None => serve::supervise(&args.host, args.port, args.grace).map(Either::Parent),
    }
}

/// Returns true if a command looks at devices, or computes on them, in this process. `doctor` loads libraries
/// of backends itself.
fn uses_devices(command: &Command) -> bool {
    match command {
        Command::Run(_)
        | Command::Serve(_)
        | Command::Batch(_)
        | Command::Plan(_)
        | Command::List(_)
        | Command::Bench(_)
        | Command::Optimize(_)
        | Command::Perplexity(_)
        | Command::Calibrate(_)
        | Command::Sweep(_)
        | Command::Trace(_)
        | Command::Experts(ExpertsCommand::Learn(_))
        | Command::Machine(_)
        | Command::Worker(_) => true,
        Command::Inspect(_)
        | Command::Llama(_)
        | Command::Attach(_)
        | Command::Quantize(_)
        | Command::Iobench(_)
        | Command::Top(_)
        | Command::Pull(_)
        | Command::Rm(_)
        | Command::Completions(_)
        | Command::Man(_)
        | Command::Experts(_)
        | Command::Doctor(_) => false,
    }
}

/// Prints clap's message for a wrong command line in the form of all other errors; prints help and
/// version unchanged.
fn explain(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return match error.print() {
            Err(failed) if failed.kind() != ErrorKind::BrokenPipe => fail(&CliError::io("stdout")(failed)),
            _ => ExitCode::SUCCESS,
        };
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(2);
    }
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines = lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    // Missing arguments and possible values are listed below the first line, tips after them.
    let (tips, message): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with("tip: "));
    say!("{}", message.join(" "));
    match tips.first() {
        Some(tip) => say!("hint: {}", tip.trim_start_matches("tip: ")),
        // The message lists the values that there are.
        None if error.get(ContextKind::ValidValue).is_some() => {}
        None => say!("hint: `terrace --help` and `terrace COMMAND --help` list the options"),
    }
    ExitCode::from(2)
}

fn fail(error: &CliError) -> ExitCode {
    print_failure(error);
    ExitCode::from(error.exit_code())
}

/// The form of the log, where one was asked for.
const fn log_format(command: &Command) -> Option<LogFormat> {
    match command {
        Command::Serve(args) => args.log_format,
        _ => None,
    }
}

/// Warnings of Terrace itself always show. The libraries below it show only through the errors that
/// they cause, unless `-v` asks for everything. With a `format`, requests are logged, with the time.
fn start_logging(verbose: u8, format: Option<LogFormat>) {
    let default = match verbose {
        0 => {
            "off,terrace=warn,terrace_plan=warn,terrace_store=warn,terrace_host=warn,terrace_quantize=warn,terrace_backend=warn,terrace_lanes=warn,terrace_engine=warn,terrace_eval=warn,terrace_serving=warn,terrace_server=warn,terrace_models=warn,terrace_cli=warn,terrace_lab=warn"
        }
        1 => "info",
        _ => "debug,hyper=info,hyper_util=info,rustls=info,ureq=info,ureq_proto=info",
    };
    let default = match format {
        Some(_) => format!("{default},terrace_server::request=info,terrace_server::state=info"),
        None => default.to_owned(),
    };
    let set = terrace_cli::environment::var("TERRACE_LOG").ok().filter(|directives| !directives.is_empty());
    let filter = set.and_then(|directives| EnvFilter::try_new(directives).ok());
    let filter = filter.unwrap_or_else(|| EnvFilter::new(default));
    let obeys = terrace_platform::terminal::obey_escapes();
    // https://no-color.org: any value but an empty one.
    let plain = terrace_cli::environment::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || Log { wraps: format.is_none() })
        .log_internal_errors(false)
        .with_ansi(obeys && std::io::stderr().is_terminal() && !plain)
        .with_target(verbose > 0 || format == Some(LogFormat::Json));
    match format {
        None => log.without_time().init(),
        Some(LogFormat::Text) => log.init(),
        Some(LogFormat::Json) => log.json().flatten_event(true).with_current_span(false).init(),
    }
}
