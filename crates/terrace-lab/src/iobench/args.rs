//! The options of `terrace iobench`.

use clap::Args;
use std::path::PathBuf;
use terrace_model::ByteSize;

/// `terrace iobench`.
#[derive(Debug, Args)]
pub struct IobenchArgs {
    /// Files, such as a model and its copies on other disks, or directories, in which a temporary file
    /// is written
    ///
    /// Several are measured one after the other. Each file is dropped from the page cache several
    /// times. The best settings for the device are saved in $XDG_CACHE_HOME/terrace/io.json and used
    /// whenever a model on that device is read.
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<PathBuf>,
    /// Size of the temporary file
    #[arg(long, value_name = "SIZE", default_value = "4GiB")]
    pub size: ByteSize,
    /// Approximate duration of all measurements of a path, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,
    /// Print one JSON object per path, each in a line, instead of the tables
    #[arg(long)]
    pub json: bool,
}
