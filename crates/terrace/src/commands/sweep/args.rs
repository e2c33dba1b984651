//! The command line of `terrace sweep`.

use crate::args::{EngineArgs, MODEL_HELP, TestingArgs};
use clap::Args;
use std::path::PathBuf;
use std::str::FromStr;
use terrace_eval::sweep::{Grouping, Subjects};
use terrace_ggml::quantize::WeightType;
use terrace_model::ByteSize;

/// `terrace sweep`.
#[derive(Debug, Args)]
pub struct SweepArgs {
    #[doc = "MODEL."]
    #[arg(value_name = "MODEL", help = MODEL_HELP)]
    pub model: String,
    /// The text to measure on; one newline at its end is not part of it
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// What was measured, a JSON object a line; if it is there, the sweep goes on where it was. Beside it, with other endings: the
    /// table (.csv), the plot (.svg) and, with --budget, the recipe (.recipe)
    #[arg(short, long, value_name = "FILE")]
    pub out: PathBuf,
    /// Try the tensors of this model, of other types than MODEL's: FILE or NAME=FILE; may be repeated
    #[arg(long, value_name = "[NAME=]FILE")]
    pub donor: Vec<DonorArg>,
    /// Make a donor of this type of tensors (q4_K, iq3_s, ...) of MODEL, or of --from; may be repeated
    #[arg(long = "type", value_name = "TYPE", value_parser = weight_type)]
    pub types: Vec<WeightType>,
    /// The model in full precision that --type makes donors of
    #[arg(long, value_name = "FILE", requires = "types")]
    pub from: Option<PathBuf>,
    /// How much each column matters, for --type
    #[arg(long, value_name = "FILE", requires = "types")]
    pub imatrix: Option<PathBuf>,
    /// Which matrices are swept: those in whose names this is found
    #[arg(long = "tensor", value_name = "REGEX", default_value = Subjects::DEFAULT_PATTERN)]
    pub tensor: String,
    /// What changes together: one tensor, or a layer's
    #[arg(long, value_name = "tensor|layer", default_value_t)]
    pub group: Grouping,
    /// Chunks of the text to evaluate, --ctx tokens each [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub chunks: Option<u32>,
    /// Compare with this base (perplexity --save-logits, of the same text) instead of MODEL itself
    #[arg(long, value_name = "BASE")]
    pub kld: Option<PathBuf>,
    /// Find the mix of types with the least divergence whose tensors are within this size, all of the model counted
    #[arg(long, value_name = "SIZE")]
    pub budget: Option<ByteSize>,
    /// Mixes that are measured, of those that should be best; those of one donor alone come on top
    #[arg(long, value_name = "N", default_value_t = 4, requires = "budget", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub candidates: u32,
    /// Write the model with the best mix
    #[arg(long, value_name = "OUT", requires = "budget")]
    pub write: Option<PathBuf>,
    /// Print one JSON object at the end instead of tables
    #[arg(long)]
    pub json: bool,
    /// Placement.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Testing.
    #[command(flatten)]
    pub testing: TestingArgs,
}

/// `FILE`, called by its stem, or `NAME=FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DonorArg {
    /// What it is called.
    pub name: String,
    /// The file.
    pub path: PathBuf,
}

impl FromStr for DonorArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, path) = match text.split_once('=') {
            // A path may well have an equals sign further on.
            Some((name, path)) if !name.contains('/') => (name.to_owned(), PathBuf::from(path)),
            _ => {
                let path = PathBuf::from(text);
                (path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), path)
            }
        };
        if name.is_empty() { Err("a donor is FILE or NAME=FILE".into()) } else { Ok(Self { name, path }) }
    }
}

fn weight_type(text: &str) -> Result<WeightType, String> {
    WeightType::from_name(text).ok_or_else(|| {
        let known: Vec<&str> = WeightType::ALL.iter().map(|ty| ty.name()).collect();
        format!("no type of tensors that can be made; there are {}", known.join(", "))
    })
}
