//! The options of `terrace iobench`.

use clap::Args;
use std::path::PathBuf;
use terrace_model::ByteSize;

/// `terrace iobench`.
#[derive(Debug, Args)]
pub struct IobenchArgs {
    /// A file, such as a model, or a directory, in which a temporary file is written
    ///
    /// The file is dropped from the page cache several times. The best settings for the device are
    /// saved in $XDG_CACHE_HOME/terrace/io.json and used whenever a model on that device is read.
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
    /// Size of the temporary file
    #[arg(long, value_name = "SIZE", default_value = "4GiB")]
    pub size: ByteSize,
    /// Approximate duration of all measurements, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub json: bool,
}
