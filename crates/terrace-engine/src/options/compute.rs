//! Options of computing.

use crate::lossy::LossySource;
use std::path::PathBuf;

/// Options of computing.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Devices")]
pub struct ComputeOptions {
    /// CPU threads [default: one per core]
    #[arg(short, long, value_name = "N", env = "TERRACE_THREADS", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// CPU threads for prompts [default: the value of --threads]
    #[arg(long, value_name = "N", env = "TERRACE_THREADS_BATCH", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads_batch: Option<u32>,
    /// Skip the layers listed in a file from `calibrate --skip-layers` (lossy: faster, but other tokens);
    /// auto, or no value: those of the model's last calibration
    #[arg(long, value_name = "FILE|auto", env = "TERRACE_LAYER_SKIP")]
    pub layer_skip: Option<PathBuf>,
    /// Choose experts that are in memory, drop light ones that are not or read them in fewer bits, skip
    /// layers or use fewer experts (lossy: fewer reads, but other tokens): a file from `calibrate`, or
    /// settings like prior=0.1,keep=1,drop=0.5,low=FILE,skip=3+4,experts=6, or kld=0.02 to keep the mean
    /// divergence within this budget by measuring it
    #[arg(long, value_name = "FILE|SETTINGS", env = "TERRACE_LOSSY")]
    pub lossy: Option<LossySource>,
}
