//! Reading of weights.

use crate::{DirectChoice, IoChoice};
use terrace_model::ByteSize;

/// Ways to read weights.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Advanced")]
pub struct IoOptions {
    /// I/O engine that reads weights
    #[arg(long, value_name = "uring|pread|auto", env = "TERRACE_IO", default_value_t)]
    pub io: IoChoice,
    /// Read past the page cache
    #[arg(long, value_name = "on|off|auto", env = "TERRACE_DIRECT", default_value_t)]
    pub direct: DirectChoice,
    /// Maximum number of reads in flight [default: as measured by iobench, or 32, and up to four times as many
    /// while the disk would idle during computing]
    #[arg(long, value_name = "N", env = "TERRACE_QUEUE_DEPTH", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub queue_depth: Option<u32>,
    /// Maximum size of a read request [default: as measured by iobench, or 1MiB]
    #[arg(long, value_name = "SIZE", env = "TERRACE_REQUEST_SIZE", value_parser = request_size)]
    pub request_size: Option<ByteSize>,
    /// Compare everything that is read with checksums, so that bytes that a disk silently changes
    /// are an error. The first run reads the whole model once more, and keeps them
    #[arg(long, env = "TERRACE_VERIFY")]
    pub verify: bool,
}

fn request_size(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    if (4096..=1 << 30).contains(&size.bytes()) { Ok(size) } else { Err("must be from 4KiB to 1GiB".into()) }
}
