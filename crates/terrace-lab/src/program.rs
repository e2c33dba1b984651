//! The commands of the program that tests here parse.

use crate::bench::BenchArgs;
use clap::{Parser, Subcommand};
use terrace_cli::args::RunArgs;

#[derive(Debug, Parser)]
#[command(name = "terrace")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "tests parse one at a time")]
pub enum Command {
    Bench(BenchArgs),
    Run(RunArgs),
}
