//! The command line.
//!
//! Every option that may also stand in the environment or the configuration file says so with `env`; the layers are
//! put together in [`crate::config`].

use crate::args::EngineArgs;
use crate::commands::bench::BenchArgs;
use crate::commands::calibrate_skip::CalibrateSkipArgs;
use crate::commands::completions::CompletionsArgs;
use crate::commands::doctor::DoctorArgs;
use crate::commands::inspect::InspectArgs;
use crate::commands::iobench::IobenchArgs;
use crate::commands::machine::MachineArgs;
use crate::commands::man::ManArgs;
use crate::commands::optimize::OptimizeArgs;
use crate::commands::perplexity::PerplexityArgs;
use crate::commands::plan::PlanArgs;
use crate::commands::quantize::QuantizeArgs;
use crate::commands::run::RunArgs;
use crate::commands::serve::ServeArgs;
use crate::commands::sweep::SweepArgs;
use crate::commands::trace::TraceCommand;
use clap::{ArgAction, Parser, Subcommand};
use std::path::PathBuf;

/// Runs GGUF models that do not fit in memory.
#[derive(Debug, Parser)]
#[command(name = "terrace", version, propagate_version = true, disable_help_subcommand = true)]
pub struct Cli {
    /// Configuration file [default: $XDG_CONFIG_HOME/terrace/config.toml]
    #[arg(long, global = true, value_name = "FILE", env = "TERRACE_CONFIG")]
    pub config: Option<PathBuf>,

    /// Show logs on stderr, and what will live where; twice for more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Generate text
    Run(RunArgs),
    /// Answer requests over HTTP, as OpenAI's API and llama.cpp's server do
    Serve(ServeArgs),
    /// Show what a model file holds
    Inspect(InspectArgs),
    /// Say what would live where on a machine, and how fast that should be
    Plan(PlanArgs),
    /// Measure generation, alone or against stock llama.cpp
    Bench(BenchArgs),
    /// Search for the settings that run a model fastest here, and keep them for later runs
    Optimize(OptimizeArgs),
    /// Measure how well a model predicts a text, as llama.cpp's perplexity does
    Perplexity(PerplexityArgs),
    /// Find layers that could be left out, and measure what that costs
    CalibrateSkip(CalibrateSkipArgs),
    /// Write a model in other types, as llama.cpp's quantize does; or one file per tensor
    Quantize(QuantizeArgs),
    /// Measure what each tensor's type costs, in the running model, and find the best mix of types within a size
    Sweep(SweepArgs),
    /// Record which experts a model uses, and replay that against cache policies
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Measure how fast a file or a disk can be read, and keep what reads it best
    Iobench(IobenchArgs),
    /// Measure memory, processor, devices and storage for `plan`, and keep that
    #[command(alias = "profile")]
    Machine(MachineArgs),
    /// Say what keeps this machine from running models well, and what to do about it
    Doctor(DoctorArgs),
    /// Print the completion script of a shell
    Completions(CompletionsArgs),
    /// Print the manual page, or write one for each command
    Man(ManArgs),
}

impl Cli {
    /// The model and its options, where a stored preset is used.
    pub fn presettable(&mut self) -> Option<(Option<&str>, &mut EngineArgs)> {
        match &mut self.command {
            Command::Run(args) => Some((args.model.as_deref(), &mut args.engine)),
            Command::Serve(args) => Some((args.model.as_deref(), &mut args.engine)),
            Command::Bench(args) => Some((args.model.as_deref(), &mut args.engine)),
            _ => None,
        }
    }

    /// The options of what runs other processes by them.
    pub fn engine(&mut self) -> Option<&mut EngineArgs> {
        match &mut self.command {
            Command::Bench(args) => Some(&mut args.engine),
            Command::Optimize(args) => Some(&mut args.engine),
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
            [["--temp", "-1"], ["--temp", "nan"], ["--top-p", "1.5"], ["--ctx", "0"], ["--threads", "0"]]
        {
            let all = ["terrace", "run", "m.gguf"].into_iter().chain(args);
            assert!(Cli::try_parse_from(all).is_err(), "{args:?}");
        }
    }
}
