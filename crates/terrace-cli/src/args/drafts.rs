//! Drafts: tokens that are guessed, and checked together.

use super::{EngineArgs, PresetArgs};
use crate::error::CliError;
use crate::report::RunReport;
use clap::Args;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use terrace_engine::options::{DraftOptions, DraftSource, Recorded};
use terrace_platform::input_file::{self, MAX_TEXT};

/// Drafts: tokens that are guessed, and checked together.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Generate")]
pub struct DraftArgs {
    /// Those of the engine.
    #[command(flatten)]
    pub given: DraftOptions,
    /// Guess from the answer in a report of `run --json`, to measure
    #[arg(long, hide = true, value_name = "FILE", conflicts_with = "draft")]
    pub draft_recorded: Option<PathBuf>,
    /// Share of these guesses that are right
    #[arg(long, hide = true, value_name = "SHARE", default_value_t = 1.0, requires = "draft_recorded")]
    pub draft_right: f64,
}

impl DraftArgs {
    /// Returns the engine's options. A source that a preset names is optional: it was good for a run with
    /// other options.
    ///
    /// # Errors
    /// The recorded answer cannot be read.
    pub fn options(&self, presets: &PresetArgs) -> Result<DraftOptions, CliError> {
        let mut options = self.given.clone();
        if let Some(path) = &self.draft_recorded {
            let recorded = Recorded { answer: recorded(path)?, right: self.draft_right };
            options.draft = Some(DraftSource::Recorded(recorded));
        }
        options.draft_optional |= presets.sets("draft");
        Ok(options)
    }

    /// Tells child processes these, with the other options.
    pub fn tell(&self, engine: &mut EngineArgs) {
        let Self { given, draft_recorded, draft_right } = self;
        let DraftOptions { draft, draft_max, draft_ungated, draft_optional } = given;
        if draft_recorded.is_some() {
            engine.presets.forget("draft");
        }
        let optional = *draft_optional || engine.presets.sets("draft");
        let right = draft_recorded.as_ref().map(|_| draft_right.to_string().into());
        for (name, value) in [
            ("draft-recorded", draft_recorded.clone().map(OsString::from)),
            ("draft-right", right),
            ("draft", draft.as_ref().map(|draft| draft.to_string().into())),
            ("draft-max", draft_max.map(|most| most.to_string().into())),
        ] {
            value.into_iter().for_each(|value| engine.words.set(name, value));
        }
        for (name, given) in [("draft-ungated", *draft_ungated), ("draft-optional", optional)] {
            given.then(|| engine.words.set_switch(name));
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
