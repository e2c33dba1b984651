//! The options of `terrace experts`.

use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use terrace_cli::args::{EngineArgs, MODEL_HELP, TestingArgs};
use terrace_cli::args::{Output, output, output_or_pipe};
use terrace_cli::remote::ServerArgs;
use terrace_cli::written;

/// Commands for uses of experts. FILE is a learn file, or the record of a model that Terrace keeps.
#[derive(Debug, Subcommand)]
pub enum ExpertsCommand {
    /// Evaluate a text, and write how often it uses each expert, for --learned
    Learn(Box<LearnArgs>),
    /// Draw how often each expert of each layer was used
    Show(ShowArgs),
    /// Compare two files: which experts are used most, and how much of the use is elsewhere
    Diff(DiffArgs),
    /// Have a running server copy the experts that a file counts as used most to its devices
    Apply(ApplyArgs),
    /// Write a file as a learn file, or as the record that Terrace keeps of a model
    Convert(ConvertArgs),
}

/// `terrace experts learn`.
#[derive(Debug, Args)]
pub struct LearnArgs {
    #[doc = "MODEL."]
    #[arg(value_name = "MODEL", env = "TERRACE_MODEL", help = MODEL_HELP)]
    pub model: Option<OsString>,
    /// Text to evaluate, --ctx tokens at a time [default for --ctx: 512]
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Learn file to write
    #[arg(short, long, value_name = "FILE", value_parser = output(&terrace_engine::learn::FILE))]
    pub out: Output,
    /// Tokens of the text to evaluate [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub tokens: Option<u32>,
    /// Placement.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Testing.
    #[command(flatten)]
    pub testing: TestingArgs,
}

/// `terrace experts show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// File to draw
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Print a list instead, for --cache-policy static:FILE: layer and expert, the N most used first
    /// [default for N: all that were used]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "4294967295",
        hide_default_value = true, value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "svg")]
    pub list: Option<u32>,
    /// Write an SVG drawing as well
    #[arg(long, value_name = "FILE", value_parser = output_or_pipe(&written::SVG))]
    pub svg: Option<Output>,
}

/// `terrace experts diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// File to compare
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,
    /// File to compare it with
    #[arg(value_name = "AFTER")]
    pub after: PathBuf,
    /// Number of each layer's most used experts to compare [default: a tenth of those in use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub top: Option<u32>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub json: bool,
}

/// `terrace experts apply`.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// File to apply
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The server.
    #[command(flatten)]
    pub server: ServerArgs,
    /// Have the server save the file in its --learn-dir as well
    #[arg(long)]
    pub save: bool,
    /// Print the server's response instead of the text
    #[arg(long)]
    pub json: bool,
}

/// `terrace experts convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// File to read
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// File to write
    #[arg(value_name = "OUT", value_parser = output(&terrace_engine::learn::FILE))]
    pub out: Output,
    /// Form of the output: learn: a learn file with counts and times; counts: one without times; statistics:
    /// the record that Terrace keeps of a model, which needs --model
    #[arg(long, value_name = "FORMAT", default_value = "learn")]
    pub to: Format,
    /// Model that the file is of; it is then checked that the file fits it
    #[arg(long, value_name = "MODEL")]
    pub model: Option<OsString>,
}

/// A format of uses of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A learn file.
    Learn,
    /// A learn file without times.
    Counts,
    /// The record that Terrace keeps between runs.
    Statistics,
}
