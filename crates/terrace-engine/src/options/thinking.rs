//! Default settings of reasoning.

use crate::chat::{Conversation, ReasoningFormat};
use serde_json::{Map, Value};
use terrace_ggml::llama::Thoughts;

/// Default settings of reasoning.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Chat")]
pub struct ThinkingOptions {
    /// Default for `enable_thinking` in requests that do not set it
    #[arg(long, value_name = "on|off|auto", env = "TERRACE_REASONING", default_value = "auto")]
    pub reasoning: Reasoning,
    /// Place of reasoning in responses, unless requests set it
    #[arg(long, value_name = "FORMAT", env = "TERRACE_REASONING_FORMAT", default_value_t)]
    pub reasoning_format: ReasoningFormat,
    /// Default reasoning effort of requests: a level of the model's template, mostly low, medium or high; none:
    /// no reasoning
    #[arg(long, value_name = "LEVEL", env = "TERRACE_REASONING_EFFORT")]
    pub reasoning_effort: Option<String>,
    /// Maximum number of tokens of reasoning, for requests that set none; -1: no limit
    #[arg(long, value_name = "N", env = "TERRACE_REASONING_BUDGET", default_value_t = -1, value_parser = clap::value_parser!(i32).range(-1..), allow_negative_numbers = true)]
    pub reasoning_budget: i32,
    /// Text that ends reasoning which exceeds its budget
    #[arg(long, value_name = "TEXT", hide = true)]
    pub reasoning_budget_message: Option<String>,
    /// Variables of the chat template for requests that do not set them: a JSON object
    #[arg(long, value_name = "JSON", env = "TERRACE_CHAT_TEMPLATE_KWARGS", value_parser = object)]
    pub chat_template_kwargs: Option<Map<String, Value>>,
}

/// Reasoning of models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Reasoning {
    /// Enabled.
    On,
    /// Disabled.
    Off,
    /// The chat template's default.
    #[default]
    Auto,
}

terrace_model::default_is_unset!(ThinkingOptions);

impl ThinkingOptions {
    /// Completes a conversation that says of itself whether the model thinks and where that appears, or
    /// does not.
    pub fn complete(
        &self,
        conversation: &mut Conversation,
        thinks: Option<bool>,
        format: Option<ReasoningFormat>,
    ) {
        let given = &mut conversation.chat_template_kwargs;
        let effort = self.reasoning_effort.as_ref();
        let effort = effort.map(|effort| ("reasoning_effort", Value::from(effort.as_str())));
        let variables = self.chat_template_kwargs.iter().flatten();
        let variables = variables.map(|(name, value)| (name.as_str(), value.clone()));
        // The effort is the more specific of the two.
        for (name, value) in effort.into_iter().chain(variables) {
            given.entry(name.to_owned()).or_insert_with(|| value.to_string());
        }
        let is = |name: &str, no: &str| given.get(name).is_some_and(|value| value.trim_matches('"') == no);
        let unwanted = is("reasoning_effort", "none") || is("enable_thinking", "false");
        let default = match self.reasoning {
            Reasoning::On => Some(true),
            Reasoning::Off => Some(false),
            Reasoning::Auto => None,
        };
        conversation.enable_thinking = thinks.or(default).unwrap_or(!unwanted);
        conversation.reasoning_format = format.unwrap_or(self.reasoning_format);
    }

    /// Returns the maximum number of tokens of reasoning; `None` means no limit.
    pub fn budget(&self) -> Option<u32> {
        u32::try_from(self.reasoning_budget).ok()
    }

    /// Limits reasoning to a budget.
    pub fn limit(&self, thoughts: &mut Thoughts, budget: Option<u32>) {
        thoughts.tokens = budget;
        thoughts.message = self.reasoning_budget_message.clone().unwrap_or_default();
    }
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("is no JSON object: {error}"))
}
