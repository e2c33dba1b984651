//! Drafts: tokens that are guessed, and checked together.

use super::{EngineArgs, PresetArgs};
use crate::error::CliError;
use crate::report::RunReport;
use clap::Args;
use std::path::{Path, PathBuf};
use terrace_engine::options::{DraftOptions, DraftSource, Recorded};
use terrace_platform::input_file::{self, MAX_TEXT};

/// Drafts: tokens that are guessed, and checked together.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Memory and I/O")]
pub struct DraftArgs {
    /// Guess the next tokens and check several in one pass, which reads streamed weights once for all
    /// of them; the text is the same. `ngram` guesses from the text so far, `mtp` with the model's own
    /// layers for that (MTP layers, which are loaded then), a model file with that model (a small one
    /// with the same vocabulary, kept in RAM). `auto` is `mtp` where the model has such layers and the
    /// plan says that drafts pay, otherwise `ngram`, and nothing where tokens do not stay exact or no
    /// drafts can pay [default: off]
    #[arg(long, value_name = "auto|off|ngram|mtp|FILE", env = "TERRACE_DRAFT")]
    pub draft: Option<DraftSource>,
    /// Most tokens that are guessed at once [default: 6 for models with experts, 15 for others, which
    /// are also the most]
    #[arg(long, value_name = "N", env = "TERRACE_DRAFT_MAX", value_parser = clap::value_parser!(u32).range(1..=15))]
    pub draft_max: Option<u32>,

    /// Guess from the answer in a report of `run --json`, to measure
    #[arg(long, hide = true, value_name = "FILE", conflicts_with = "draft")]
    pub draft_recorded: Option<PathBuf>,
    /// Share of these guesses that are right
    #[arg(long, hide = true, value_name = "SHARE", default_value_t = 1.0, requires = "draft_recorded")]
    pub draft_right: f64,
    /// Check all guesses, whether that pays or not
    #[arg(long, hide = true)]
    pub draft_ungated: bool,
    /// Do without drafts where they cannot be had or could change the text
    #[arg(long, hide = true)]
    pub draft_optional: bool,
}

impl DraftArgs {
    /// Converts these to the engine's options. A source that a preset names is optional: it was good for a run
    /// with other options.
    ///
    /// # Errors
    /// The recorded answer cannot be read.
    pub fn options(&self, presets: &PresetArgs) -> Result<DraftOptions, CliError> {
        let Self { draft, draft_max, draft_recorded, draft_right, draft_ungated, draft_optional } = self;
        let source = match draft_recorded {
            Some(path) => DraftSource::Recorded(Recorded { answer: recorded(path)?, right: *draft_right }),
            None => draft.clone().unwrap_or_default(),
        };
        let optional = *draft_optional || presets.sets("draft");
        Ok(DraftOptions { source, most: *draft_max, ungated: *draft_ungated, optional })
    }

    /// Tells child processes these, with the other options.
    pub fn tell(&self, engine: &mut EngineArgs) {
        let Self { draft, draft_max, draft_recorded, draft_right, draft_ungated, draft_optional } = self;
        if draft_recorded.is_some() {
            engine.presets.forget("draft");
        }
        let (words, optional) = (&mut engine.words, *draft_optional || engine.presets.sets("draft"));
        match (draft_recorded, draft) {
            (Some(path), _) => {
                words.set("draft-recorded", path);
                words.set("draft-right", draft_right.to_string());
            }
            (None, Some(draft)) => words.set("draft", draft.to_string()),
            (None, None) => {}
        }
        if let Some(most) = draft_max {
            words.set("draft-max", most.to_string());
        }
        for (name, given) in [("draft-ungated", *draft_ungated), ("draft-optional", optional)] {
            if given {
                words.set_switch(name);
            }
        }
    }
}

/// The tokens of an earlier run's answer.
fn recorded(path: &Path) -> Result<Vec<i32>, CliError> {
    let read = input_file::read_text(path, MAX_TEXT).map_err(|error| error.to_string());
    let report = read.and_then(|text| serde_json::from_str::<RunReport>(&text).map_err(|e| e.to_string()));
    let usage = |reason| CliError::Usage {
        message: format!("{}: {reason}", path.display()),
        hint: "write the report with `terrace run --json`".into(),
    };
    Ok(report.map_err(usage)?.tokens)
}
