//! Assumptions of estimates.

use super::expected::{Expected, ExpectedSource};
use crate::hits::HitCurve;
use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Assumptions of estimates.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Advanced")]
pub struct EstimateOptions {
    /// Reuse of experts that estimates assume: typical, uniform (as in models with random weights), or as in
    /// a trace from `trace record`
    #[arg(long, value_name = "typical|uniform|TRACE", env = "TERRACE_HITS", default_value_t)]
    pub hits: Hits,
    /// Usual length of prompts: plans minimise the time of a prompt and its response together
    /// [default: as in earlier runs of the model, at first 512]
    #[arg(long, value_name = "TOKENS", env = "TERRACE_EXPECT_PROMPT", value_parser = clap::value_parser!(u32).range(1..))]
    pub expect_prompt: Option<u32>,
    /// Usual length of responses [default: as in earlier runs of the model, at first 256]
    #[arg(long, value_name = "TOKENS", env = "TERRACE_EXPECT_OUTPUT", value_parser = clap::value_parser!(u32).range(1..))]
    pub expect_output: Option<u32>,
    /// Expected share of drafts that is accepted, for the plan's line on --draft
    /// [default: 0.7]
    #[arg(long, value_name = "SHARE", env = "TERRACE_EXPECT_RIGHT", value_parser = terrace_model::cli::share)]
    pub expect_right: Option<f64>,
}

impl EstimateOptions {
    /// Returns the prompt and the output that plans are made for.
    pub fn expected(&self) -> Expected {
        let assumed = Expected::default();
        Expected {
            prompt: self.expect_prompt.unwrap_or(assumed.prompt),
            output: self.expect_output.unwrap_or(assumed.output),
            source: match (self.expect_prompt, self.expect_output) {
                (None, None) => assumed.source,
                _ => ExpectedSource::Stated,
            },
        }
    }
}

/// The source of the hit curve.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Hits {
    /// Trained models.
    #[default]
    Typical,
    /// Uniform use of all experts.
    Uniform,
    /// A recorded run. The caller reads it, and replaces it by what it hits.
    Trace(PathBuf),
    /// A curve that is known.
    Curve(HitCurve),
}

impl Hits {
    /// Returns the curve; `None` means the usual one of the model.
    pub fn curve(&self) -> Option<HitCurve> {
        match self {
            Self::Typical | Self::Trace(_) => None,
            Self::Uniform => Some(HitCurve::uniform()),
            Self::Curve(curve) => Some(curve.clone()),
        }
    }
}

impl FromStr for Hits {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "typical" => Self::Typical,
            "uniform" => Self::Uniform,
            file => Self::Trace(file.into()),
        })
    }
}

impl fmt::Display for Hits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Typical => f.pad("typical"),
            Self::Uniform => f.pad("uniform"),
            Self::Trace(path) => path.display().fmt(f),
            Self::Curve(_) => f.pad("measured"),
        }
    }
}
