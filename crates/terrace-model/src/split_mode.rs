//! Ways in which devices share layers.

use std::fmt;
use std::str::FromStr;

/// The division of layers among devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SplitMode {
    /// Each layer is on one of the devices.
    #[default]
    Layer,
    /// Each device holds a slice of every matrix of the layers, and the partial results are summed.
    Tensor,
}

impl FromStr for SplitMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "layer" => Ok(Self::Layer),
            "tensor" => Ok(Self::Tensor),
            "row" => Err("row needs buffers that few of ggml's drivers have; use tensor".into()),
            _ => Err(format!("`{text}` is neither layer nor tensor")),
        }
    }
}

impl fmt::Display for SplitMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Layer => "layer",
            Self::Tensor => "tensor",
        })
    }
}
