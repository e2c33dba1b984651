//! Places of reasoning in responses.

use serde::{Deserialize, Serialize};

/// Place of reasoning: llama.cpp's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ReasoningFormat {
    /// In the text.
    None,
    /// In a field of its own.
    #[default]
    Auto,
    /// Like `auto`.
    Deepseek,
    /// In both.
    #[value(hide = true)]
    DeepseekLegacy,
}

terrace_model::by_name!(ReasoningFormat);
