//! The options of `terrace sweep`.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use terrace_cli::args::{EngineArgs, MODEL_HELP, TestingArgs};
use terrace_cli::args::{Output, output};
use terrace_cli::written;
use terrace_eval::sweep::{Grouping, Subjects};
use terrace_ggml::quantize::WeightType;
use terrace_model::ByteSize;

/// `terrace sweep`.
#[derive(Debug, Args)]
pub struct SweepArgs {
    #[doc = "MODEL."]
    #[arg(value_name = "MODEL", help = MODEL_HELP)]
    pub model: OsString,
    /// Text to measure on; one newline at the end of the file is ignored
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// File for the measurements, one JSON object per line; if it exists, the sweep resumes. Files
    /// beside it, with other extensions: the table (.csv), the plot (.svg) and, with --budget, the
    /// recipe (.recipe)
    #[arg(short, long, value_name = "FILE", value_parser = output(&terrace_eval::sweep::FILE))]
    pub out: Output,
    /// Try the tensors of this model, whose types differ from MODEL's: FILE or NAME=FILE; may be
    /// repeated
    #[arg(long, value_name = "[NAME=]FILE")]
    pub donor: Vec<DonorArg>,
    /// Make a donor with tensors of this type (q4_K, iq3_s, ...) from MODEL, or from --from; may be
    /// repeated
    #[arg(long = "type", value_name = "TYPE", value_parser = weight_type)]
    pub types: Vec<WeightType>,
    /// Model in full precision that --type makes donors from
    #[arg(long, value_name = "FILE", requires = "types")]
    pub from: Option<PathBuf>,
    /// Importance matrix for --type
    #[arg(long, value_name = "FILE", requires = "types")]
    pub imatrix: Option<PathBuf>,
    /// Sweep the matrices whose names match REGEX
    #[arg(long = "tensor", value_name = "REGEX", default_value = Subjects::DEFAULT_PATTERN)]
    pub tensor: String,
    /// Change one tensor at a time, or all swept tensors of a layer
    #[arg(long, value_name = "tensor|layer", default_value_t)]
    pub group: Grouping,
    /// Chunks of the text to evaluate, --ctx tokens each [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub chunks: Option<u32>,
    /// Compare with this base (from `perplexity --save-logits`, for the same text) instead of with
    /// MODEL itself
    #[arg(long, value_name = "BASE")]
    pub kld: Option<PathBuf>,
    /// Find the mix of types with the least divergence for which all tensors of the model fit in
    /// this size
    #[arg(long, value_name = "SIZE")]
    pub budget: Option<ByteSize>,
    /// Number of mixes to measure, of those with the best predictions; mixes of a single donor are
    /// measured in addition
    #[arg(long, value_name = "N", default_value_t = 4, requires = "budget", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub candidates: u32,
    /// Write the model with the best mix to this file
    #[arg(long, value_name = "OUT", requires = "budget", value_parser = output(&written::NEW_MODEL))]
    pub write: Option<Output>,
    /// Also write the divergences to FILE in the form that quant_assign.py of GGUF-Tool-Suite reads: a row for
    /// each type, a column for each tensor
    #[arg(long, hide_short_help = true, value_name = "FILE", value_parser = output(&written::ASSIGN_TABLE))]
    pub csv_for_assign: Option<Output>,
    /// Print one JSON object at the end instead of the tables
    #[arg(long)]
    pub json: bool,
    /// Placement.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Testing.
    #[command(flatten)]
    pub testing: TestingArgs,
}

/// `FILE`, which gets its stem as name, or `NAME=FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DonorArg {
    /// The donor's name.
    pub name: String,
    /// The file.
    pub path: PathBuf,
}

impl FromStr for DonorArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, path) = match text.split_once('=') {
            // A path may contain an equals sign, too.
            Some((name, path)) if !name.contains('/') => (name.to_owned(), PathBuf::from(path)),
            _ => {
                let path = PathBuf::from(text);
                (path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), path)
            }
        };
        if name.is_empty() { Err("must be FILE or NAME=FILE".into()) } else { Ok(Self { name, path }) }
    }
}

fn weight_type(text: &str) -> Result<WeightType, String> {
    WeightType::from_name(text).ok_or_else(|| {
        let known: Vec<&str> = WeightType::ALL.iter().map(|ty| ty.name()).collect();
        format!("must be one of {}", known.join(", "))
    })
}
