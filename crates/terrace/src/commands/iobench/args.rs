//! The options of `terrace iobench`.

use clap::Args;
use std::path::PathBuf;
use terrace_model::ByteSize;

/// `terrace iobench`.
#[derive(Debug, Args)]
pub struct IobenchArgs {
    /// A file, such as a model; or a directory, to which a temporary file is written
    ///
    /// The page cache is asked to forget the file, several times. What reads the device best is kept in
    /// $XDG_CACHE_HOME/terrace/io.json, and used whenever models on it are read.
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Size of the temporary file
    #[arg(long, value_name = "SIZE", default_value = "4GiB")]
    pub size: ByteSize,
    /// How long the measurements take together, about
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub json: bool,
}
