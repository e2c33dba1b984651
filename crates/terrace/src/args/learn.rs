//! Learn files: how often each expert was used.

use super::HotCacheArgs;
use super::{Output, output};
use crate::error::CliError;
use clap::Args;
use std::path::PathBuf;
use terrace_engine::options::{HotOptions, RecordOptions};
use terrace_model::learn::Reported;

/// Learn files: how often each expert was used.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Memory and I/O")]
pub struct LearnArgs {
    /// Start with the experts that FILE counts as used most: copy them to accelerators, and read the
    /// next ones ahead into RAM. A learn file of one kind of work, written by --learn-to or
    /// `terrace experts learn`; see the guide
    #[arg(long, value_name = "FILE", env = "TERRACE_LEARNED")]
    pub learned: Option<PathBuf>,
    /// Write how often each expert is used to FILE, after each answer and at the end
    #[arg(long, value_name = "FILE", env = "TERRACE_LEARN_TO", conflicts_with = "auto_learn", value_parser = output(&terrace_engine::learn::FILE))]
    pub learn_to: Option<Output>,
    /// What is written: full: counts and times; update: counts alone; off: nothing, and copies on
    /// accelerators are not exchanged either; clients of a server may change it
    #[arg(long, value_name = "full|update|off", env = "TERRACE_LEARN_MODE", default_value_t)]
    pub learn_mode: Reported,
    /// Keep the file of --learned up to date: it need not exist yet, and is written after each
    /// answer, with half of the counts that it had at the start
    #[arg(long, env = "TERRACE_AUTO_LEARN", requires = "learned")]
    pub auto_learn: bool,
    /// Evaluate TEXT once after the load and forget it, so that accelerators have the experts it uses
    /// before the first answer
    #[arg(long, value_name = "TEXT", env = "TERRACE_WARMUP_PROMPT")]
    pub warmup_prompt: Option<String>,
}

impl LearnArgs {
    /// Converts these to the engine's options, beside those of copies.
    ///
    /// # Errors
    /// The options ask both to write a file and not to.
    pub fn options(&self, hot: &HotCacheArgs) -> Result<(HotOptions, RecordOptions), CliError> {
        let Self { learned, learn_to, learn_mode, auto_learn, warmup_prompt } = self;
        let off = *learn_mode == Reported::Off;
        if off && (learn_to.is_some() || *auto_learn) {
            return Err(CliError::Usage {
                message: format!(
                    "--learn-mode off writes no file, but {} asks for one",
                    if *auto_learn { "--auto-learn" } else { "--learn-to" }
                ),
                hint: "use only one of the two".into(),
            });
        }
        let hot = hot.options();
        let hot = HotOptions {
            learned: learned.clone(),
            auto_learn: *auto_learn,
            warm_up: warmup_prompt.clone(),
            ..hot
        };
        let record = RecordOptions {
            learn_to: learn_to.clone().map(Into::into),
            reported: *learn_mode,
            ..RecordOptions::default()
        };
        Ok((hot, record))
    }
}
