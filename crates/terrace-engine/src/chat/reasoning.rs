//! Places of reasoning in responses.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Place of reasoning: llama.cpp's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReasoningFormat {
    /// In the content, as the model writes them.
    None,
    /// Apart from the content.
    #[default]
    Auto,
    /// Apart from the content.
    Deepseek,
    /// In both.
    DeepseekLegacy,
}

impl ReasoningFormat {
    /// The format of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        serde_json::from_value(Value::String(name.into())).ok()
    }
}
