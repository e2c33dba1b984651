//! The command line.
//!
//! Options with `env` can also be set in the environment or in the configuration file;
//! [`crate::config`] combines these layers.

use crate::commands::attach::AttachArgs;
use crate::commands::batch::BatchArgs;
use crate::commands::completions::CompletionsArgs;
use crate::commands::doctor::DoctorArgs;
use crate::commands::experts::ExpertsCommand;
use crate::commands::inspect::InspectArgs;
use crate::commands::list::{ListArgs, PullArgs, RmArgs};
use crate::commands::llama::LlamaArgs;
use crate::commands::man::ManArgs;
use crate::commands::plan::PlanArgs;
use crate::commands::serve::ServeArgs;
use crate::commands::top::TopArgs;
use crate::commands::worker::WorkerArgs;
use clap::{ArgAction, Parser, Subcommand};
use std::ffi::OsStr;
use std::path::PathBuf;
use terrace_cli::args::EngineArgs;
use terrace_cli::args::RunArgs;
use terrace_cli::written::Written;
use terrace_lab::bench::BenchArgs;
use terrace_lab::calibrate::CalibrateArgs;
use terrace_lab::iobench::IobenchArgs;
use terrace_lab::machine::MachineArgs;
use terrace_lab::optimize::OptimizeArgs;
use terrace_lab::perplexity::PerplexityArgs;
use terrace_lab::quantize::QuantizeArgs;
use terrace_lab::sweep::SweepArgs;
use terrace_lab::trace::TraceCommand;

/// Runs GGUF models that do not fit in memory.
#[derive(Debug, Parser)]
#[command(name = "terrace", version, propagate_version = true, disable_help_subcommand = true)]
// Of an option that is given twice, the last value counts, as in llama.cpp.
#[command(args_override_self = true)]
pub struct Cli {
    /// Configuration file [default: $XDG_CONFIG_HOME/terrace/config.toml]
    #[arg(long, global = true, value_name = "FILE", env = "TERRACE_CONFIG")]
    pub config: Option<PathBuf>,

    /// Print logs and the plan to stderr; -vv prints more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,

    /// Print help with all options, those for tuning too
    #[arg(long, global = true, action = ArgAction::HelpLong)]
    pub help_all: Option<bool>,

    /// The files that the values above and below name to be written.
    #[arg(skip)]
    pub written: Written,

    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one in a process")]
pub enum Command {
    /// Generate text
    Run(RunArgs),
    /// Answer requests over HTTP, with the APIs of OpenAI, llama.cpp's server and Ollama
    Serve(ServeArgs),
    /// Answer a file of requests, many at a time, so that weights are read once for all of them
    Batch(BatchArgs),
    /// Start another llama.cpp - llama-server, llama-cli, llama-bench - with Terrace as its plug-in
    Llama(LlamaArgs),
    /// Look at a llama.cpp that runs with Terrace as its plug-in, and change its settings
    Attach(AttachArgs),
    /// Show what a model file contains
    Inspect(InspectArgs),
    /// Show where a model's weights would live on a machine, and the expected speed, also with workers
    Plan(PlanArgs),
    /// Measure the speed of generation, alone or against stock llama.cpp
    Bench(BenchArgs),
    /// Search for the settings that run a model fastest on this machine, and save them for later
    /// runs
    Optimize(OptimizeArgs),
    /// Measure how well a model predicts a text, as llama.cpp's perplexity tool does
    Perplexity(PerplexityArgs),
    /// Measure on a text what lossy settings cost and save, and write the best ones for --lossy, or the layers
    /// that can be skipped
    Calibrate(CalibrateArgs),
    /// Write a model in other types, as llama-quantize does, or as one file per tensor
    Quantize(QuantizeArgs),
    /// Measure the cost of each tensor's type in the running model, and find the best mix of types
    /// within a size
    Sweep(SweepArgs),
    /// Record which experts a model uses, and replay the record with other cache policies
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Watch the experts of a running server in the terminal
    Top(TopArgs),
    /// Learn which experts a kind of text uses, and show, compare, apply and convert what was learnt
    #[command(subcommand)]
    Experts(ExpertsCommand),
    /// Measure how fast a file or a disk can be read, and save the best settings
    Iobench(IobenchArgs),
    /// Measure memory, processor, devices and storage for `plan`, and save the result
    #[command(alias = "profile")]
    Machine(MachineArgs),
    /// List downloaded models: size, type, and what they would run at on this machine
    List(ListArgs),
    /// Download a model from the hub
    Pull(PullArgs),
    /// Delete a downloaded model
    Rm(RmArgs),
    /// Lend this machine's devices, or its CPU and RAM, to Terrace or llama.cpp on another machine
    /// (--rpc)
    Worker(WorkerArgs),
    /// Find what keeps this machine from running models well, and how to fix it
    Doctor(DoctorArgs),
    /// Print the completion script for a shell
    Completions(CompletionsArgs),
    /// Print the manual page, or write one page per command
    Man(ManArgs),
}

impl Cli {
    /// The model and its options, for commands that use a saved preset.
    pub fn presettable(&mut self) -> Option<(Option<&OsStr>, &mut EngineArgs)> {
        match &mut self.command {
            Command::Run(args) => Some((args.model.as_deref(), &mut args.engine)),
            Command::Serve(args) => Some((args.model.as_deref(), &mut args.engine)),
            Command::Batch(args) => Some((args.model.as_deref(), &mut args.engine)),
            // A preset is one model's.
            Command::Bench(args) if args.model.len() > 1 => None,
            Command::Bench(args) => Some((args.model.first().map(AsRef::as_ref), &mut args.engine)),
            Command::Plan(args) => Some((args.model.as_deref(), &mut args.engine)),
            _ => None,
        }
    }

    /// The options, of which warnings and child processes need to know which were given.
    pub fn engine(&mut self) -> Option<&mut EngineArgs> {
        match &mut self.command {
            Command::Run(args) => Some(&mut args.engine),
            Command::Serve(args) => Some(&mut args.engine),
            Command::Batch(args) => Some(&mut args.engine),
            Command::Bench(args) => Some(&mut args.engine),
            Command::Optimize(args) => Some(&mut args.engine),
            Command::Perplexity(args) => Some(&mut args.engine),
            Command::Calibrate(args) => Some(&mut args.engine),
            Command::Sweep(args) => Some(&mut args.engine),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn numbers_outside_their_range_are_refused() {
        for args in
            [["--temp", "-1"], ["--temp", "nan"], ["--top-p", "1.5"], ["--ctx", "-1"], ["--threads", "0"]]
        {
            let all = ["terrace", "run", "m.gguf"].into_iter().chain(args);
            assert!(Cli::try_parse_from(all).is_err(), "{args:?}");
        }
    }
}
