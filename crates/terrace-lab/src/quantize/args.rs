//! The options of `terrace quantize`.

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use regex::Regex;
use std::ffi::OsString;
use std::path::PathBuf;
use terrace_cli::args::MODEL_HELP;
use terrace_cli::args::{Output, output_or_folder};
use terrace_ggml::llama::FileType;
use terrace_ggml::quantize::WeightType;
use terrace_model::ByteSize;
use terrace_quantize::{MetadataRule, TypeRule, TypeRules};

/// `terrace quantize`.
#[derive(Debug, Args)]
pub struct QuantizeArgs {
    #[doc = "MODEL."]
    #[arg(value_name = "MODEL", help = MODEL_HELP)]
    pub model: OsString,
    /// File to write; with --split-tensors or --shards-on, a folder, or the prefix of the files' names
    #[arg(value_name = "OUT", required_unless_present = "dry_run", value_parser = output_or_folder(&terrace_quantize::FILE))]
    pub out: Option<Output>,
    /// Type to write, as for --type
    #[arg(value_name = "TYPE", conflicts_with = "file_type")]
    pub positional_type: Option<FileType>,
    /// Type to write, as llama.cpp names it: Q4_K_M, IQ2_XS, Q8_0, F16, ...; COPY leaves all types
    /// unchanged [default with --split-tensors, --shards-on, --recipe or --custom-q: COPY]
    #[arg(long = "type", value_name = "TYPE", required_unless_present_any = ["positional_type", "fit", "split_tensors", "shards_on", "recipe", "custom_q"])]
    pub file_type: Option<FileType>,
    /// Choose a type for each matrix so that the file has at most this size and the error of the weights is
    /// least; what --tensor, --custom-q and --recipe name stays as named. `terrace sweep` measures on text
    /// instead
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["file_type", "positional_type", "pure", "only"])]
    pub fit: Option<ByteSize>,
    /// Type of the tensors whose names match REGEX: REGEX=TYPE (q4_K, f16, ...); may be repeated,
    /// the first match decides and overrides --type. Norms, routers and all else that llama.cpp
    /// never quantises stay unchanged
    #[arg(long = "tensor", value_name = "REGEX=TYPE")]
    pub tensor: Vec<TypeRule>,
    /// Such rules separated by commas, as llama-quantize of ik_llama.cpp reads them; they apply after those
    /// of --tensor
    #[arg(long, value_name = "REGEX=TYPE,...")]
    pub custom_q: Vec<TypeRules>,
    /// File of such rules, separated by line breaks or spaces (# begins a line of comment), which apply after
    /// those of --tensor; a rule may match no tensor
    #[arg(long, value_name = "FILE")]
    pub recipe: Option<PathBuf>,
    /// Importance matrix: a file written by llama.cpp's imatrix tool, in either of its formats
    #[arg(long, value_name = "FILE")]
    pub imatrix: Option<PathBuf>,
    /// Use the importance matrix only for tensors whose names contain TEXT (repeatable)
    #[arg(long, value_name = "TEXT", requires = "imatrix", conflicts_with = "exclude_weights")]
    pub include_weights: Vec<String>,
    /// Use the importance matrix only for other tensors than those whose names contain TEXT (repeatable)
    #[arg(long, value_name = "TEXT", requires = "imatrix")]
    pub exclude_weights: Vec<String>,
    /// Leave the output head as it is
    #[arg(long, conflicts_with = "output_tensor_type")]
    pub leave_output_tensor: bool,
    /// Type of the output head, in place of the mixture's
    #[arg(long, value_name = "TYPE", value_parser = weight_type)]
    pub output_tensor_type: Option<WeightType>,
    /// Type of the table of embeddings, in place of the mixture's
    #[arg(long, value_name = "TYPE", value_parser = weight_type)]
    pub token_embedding_type: Option<WeightType>,
    /// Write KEY with this value in place of the model's: KEY=TYPE:VALUE, of type int, float, bool or str
    /// (repeatable)
    #[arg(long, value_name = "KEY=TYPE:VALUE")]
    pub override_kv: Vec<MetadataRule>,
    /// Write only the tensors whose names match REGEX (exps: the experts): a donor, or a file for
    /// `--lossy low=`, and no model
    #[arg(long, value_name = "REGEX")]
    pub only: Option<Regex>,
    /// Give every matrix the type itself, without llama.cpp's mixture of better types
    #[arg(long)]
    pub pure: bool,
    /// Quantise tensors that are quantised already, which loses more than quantising once
    #[arg(long)]
    pub allow_requantize: bool,
    /// Write one file per tensor, after a first one for the metadata; each can be a donor for its
    /// tensor
    #[arg(long)]
    pub split_tensors: bool,
    /// Write one file per disk, each with a part of every layer in proportion to the disk's rate: a folder on each disk,
    /// as in /fast:/slow. Links to the files lie at OUT
    #[arg(long, value_name = "DIR:DIR", value_parser = OsStringValueParser::new().try_map(Folders::of), conflicts_with_all = ["split_tensors", "only"])]
    pub shards_on: Option<Folders>,
    /// Replace OUT if it is a GGUF file already, but never a file that is read
    #[arg(long)]
    pub overwrite: bool,
    /// Print the types and sizes that would be written; with -v, those of each tensor
    #[arg(long)]
    pub dry_run: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// CPU threads [default: one per core]
    #[arg(short, long, value_name = "N", env = "TERRACE_THREADS", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
}

/// Folders on disks that are read together, two at least.
#[derive(Clone, Debug)]
pub struct Folders(pub Vec<PathBuf>);

impl Folders {
    fn of(text: OsString) -> Result<Self, String> {
        let folders: Vec<PathBuf> = std::env::split_paths(&text).collect();
        if let Some(none) = folders.iter().find(|folder| !folder.is_dir()) {
            return Err(format!("{} is not a folder", none.display()));
        }
        if folders.len() < 2 {
            return Err("only one folder: name at least two, DIR:DIR".into());
        }
        Ok(Self(folders))
    }
}

impl QuantizeArgs {
    /// The type to write.
    pub fn file_type(&self) -> FileType {
        self.file_type.or(self.positional_type).unwrap_or(FileType::COPY)
    }
}

fn weight_type(text: &str) -> Result<WeightType, String> {
    let names = || WeightType::ALL.iter().map(|ty| ty.name()).collect::<Vec<_>>().join(", ");
    WeightType::from_name(text).ok_or_else(|| format!("must be one of {}", names()))
}
