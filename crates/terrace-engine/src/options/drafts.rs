//! Drafts: tokens that are guessed, and checked together.

use std::fmt;
use std::path::PathBuf;

/// Drafts: tokens that are guessed, and checked together in one pass. The text is that of decoding
/// token by token.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Generate")]
pub struct DraftOptions {
    /// Guess the next tokens and check several in one pass, which reads streamed weights once for all
    /// of them; the text is the same. `ngram` guesses from the text so far, `mtp` with the model's own
    /// layers for that (MTP layers, which are loaded then), a model file with that model (a small one
    /// with the same vocabulary, kept in RAM). `auto` is `mtp` where the model has such layers and the
    /// plan says that drafts pay, otherwise `ngram`, and nothing where tokens do not stay exact or no
    /// drafts can pay [default: off]
    #[arg(long, value_name = "auto|off|ngram|mtp|FILE", env = "TERRACE_DRAFT", aliases = ["model-draft", "spec-draft-model"])]
    pub draft: Option<DraftSource>,
    /// Most tokens that are guessed at once [default: 6 for models with experts, 15 for others, which
    /// are also the most]
    #[arg(long, value_name = "N", env = "TERRACE_DRAFT_MAX", aliases = ["draft-n", "spec-draft-n-max"], value_parser = clap::value_parser!(u32).range(1..=15))]
    pub draft_max: Option<u32>,
    /// Check all guesses, whether that pays or not
    #[arg(long, hide = true)]
    pub draft_ungated: bool,
    /// Do without drafts, with a warning, where they cannot be had or could change the text; otherwise
    /// that is an error, or a warning on devices
    #[arg(long, hide = true)]
    pub draft_optional: bool,
}

impl DraftOptions {
    /// Returns where drafts come from.
    pub fn source(&self) -> DraftSource {
        self.draft.clone().unwrap_or_default()
    }
}

/// The source of drafts.
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
pub const MOST_WITH_EXPERTS: u32 = 6;

/// Most drafts in a pass of any other model, unless more are asked for.
pub const MAX_DRAFTS: u32 = 15;

/// Most drafts in a pass of this model, unless fewer are asked for.
pub(crate) const fn most_drafts(asked: Option<u32>, experts: bool) -> u32 {
    let most = if experts { MOST_WITH_EXPERTS } else { MAX_DRAFTS };
    match asked {
        Some(asked) if asked < most => asked,
        _ => most,
    }
}
