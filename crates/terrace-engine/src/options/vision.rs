//! Images.

use std::path::PathBuf;

/// Images.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Model")]
pub struct VisionOptions {
    /// Read images with this projector: a GGUF file with a vision encoder for the model (`mmproj`). Its
    /// weights stay in RAM, which the budget for weights counts, and are computed by the CPU; the model's
    /// own may be on disk
    #[arg(long, value_name = "FILE", env = "TERRACE_MMPROJ")]
    pub mmproj: Option<PathBuf>,
    /// Least tokens that an image takes, with projectors that read images in their own resolution
    /// [default: the projector's]
    #[arg(long, value_name = "N", env = "TERRACE_IMAGE_MIN_TOKENS", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub image_min_tokens: Option<u32>,
    /// Most tokens that an image takes, with such projectors [default: the projector's]
    #[arg(long, value_name = "N", env = "TERRACE_IMAGE_MAX_TOKENS", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub image_max_tokens: Option<u32>,
}
