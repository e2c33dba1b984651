//! Drafts: tokens that are guessed, and checked together.

use std::fmt;
use std::path::PathBuf;

/// Drafts: tokens that are guessed, and checked together in one pass. The text is that of decoding
/// token by token.
#[derive(Clone, Debug, Default)]
pub struct DraftOptions {
    /// Where they come from.
    pub source: DraftSource,
    /// Maximum number of drafts in a pass; `None` means 6 for models with experts, of which more
    /// would be computed by other kernels, and 15 for others.
    pub most: Option<u32>,
    /// Has every draft checked, whether that pays or not.
    pub ungated: bool,
    /// Does without drafts, with a warning, where they cannot be had or could change the text; otherwise that
    /// is an error, or a warning on devices.
    pub optional: bool,
}

/// Where drafts come from.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum DraftSource {
    /// There are none.
    #[default]
    Off,
    /// From the model's own layers if it has such and the plan says that drafts pay, otherwise from the
    /// text itself; none if they cannot be checked, or cannot pay.
    Auto,
    /// From the text itself: what followed the last tokens when they came before.
    Ngram,
    /// From a smaller model with the same vocabulary, which stays in memory.
    Model(PathBuf),
    /// From the model's own layers that predict further tokens.
    Mtp,
    /// From an answer that was recorded before, to measure.
    Recorded(Recorded),
}

/// A recorded answer, as a source whose share of right drafts is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// Its tokens.
    pub answer: Vec<i32>,
    /// Probability that a draft is the recorded token; otherwise it is another one.
    pub right: f64,
}

impl std::str::FromStr for DraftSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "auto" => Ok(Self::Auto),
            "ngram" => Ok(Self::Ngram),
            "" => Err("is empty".into()),
            "mtp" => Ok(Self::Mtp),
            number if number.parse::<u32>().is_ok() => Err("is a number, not a source of drafts".into()),
            path => Ok(Self::Model(path.into())),
        }
    }
}

impl fmt::Display for DraftSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.pad("off"),
            Self::Auto => f.pad("auto"),
            Self::Ngram => f.pad("ngram"),
            Self::Mtp => f.pad("mtp"),
            Self::Model(path) => path.display().fmt(f),
            Self::Recorded(_) => f.pad("recorded"),
        }
    }
}

/// Most drafts in a pass of a model with experts: with the token chosen last they are 7, and ggml has
/// other kernels for an expert's product with 8 tokens or more.
pub(crate) const MOST_WITH_EXPERTS: u32 = 6;

/// Most drafts in a pass of any other model, unless more are asked for.
pub(crate) const MOST: u32 = 15;
