//! The command line of `terrace quantize`.

use crate::args::MODEL_HELP;
use clap::Args;
use std::path::PathBuf;
use terrace_ggml::llama::FileType;
use terrace_quantize::TypeRule;

/// `terrace quantize`.
#[derive(Debug, Args)]
pub struct QuantizeArgs {
    #[doc = "MODEL."]
    #[arg(value_name = "MODEL", help = MODEL_HELP)]
    pub model: String,
    /// The file to write; with --split-tensors a folder, or what the names of the files begin with
    #[arg(value_name = "OUT", required_unless_present = "dry_run")]
    pub out: Option<PathBuf>,
    /// What to make of it, as llama.cpp names it: Q4_K_M, IQ2_XS, Q8_0, F16, ...; COPY leaves all types as they are
    #[arg(long = "type", value_name = "TYPE")]
    pub file_type: FileType,
    /// The type of tensors in whose names REGEX is found: REGEX=TYPE (q4_K, f16, ...); may be repeated, the first match decides,
    /// before the mixture of --type; norms, routers and what else llama.cpp never quantises stay as they are
    #[arg(long = "tensor", value_name = "REGEX=TYPE")]
    pub tensor: Vec<TypeRule>,
    /// A file of such rules, one a line (# for comments), behind those of --tensor
    #[arg(long, value_name = "FILE")]
    pub recipe: Option<PathBuf>,
    /// How much each column matters: a file by llama.cpp's imatrix tool, in either of its formats
    #[arg(long, value_name = "FILE")]
    pub imatrix: Option<PathBuf>,
    /// All matrices get the type itself, without llama.cpp's mixture of better ones
    #[arg(long)]
    pub pure: bool,
    /// Quantise again what is quantised already; that loses more than quantising once
    #[arg(long)]
    pub allow_requantize: bool,
    /// One file per tensor, and a first one for the metadata: donors for single tensors
    #[arg(long)]
    pub split_tensors: bool,
    /// Say what would come of it, and how large that would be; with -v for each tensor
    #[arg(long)]
    pub dry_run: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// CPU threads [default: one per core]
    #[arg(short, long, value_name = "N", env = "TERRACE_THREADS", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
}
