//! How models think, for requests that do not say it.

use clap::{Args, ValueEnum};
use serde_json::{Map, Value};
use terrace_engine::ReasoningFormat;
use terrace_server::ChatDefaults;

/// How models think, for requests that do not say it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sampling")]
pub struct ThinkingArgs {
    /// Default for `enable_thinking` in requests that do not set it; auto: the chat template's default
    #[arg(long, value_name = "on|off|auto", env = "TERRACE_REASONING", default_value = "auto")]
    pub reasoning: Reasoning,
    /// Where reasoning appears in responses, unless requests set it: auto and deepseek: in a field of its
    /// own; none: in the text
    #[arg(long, value_name = "FORMAT", env = "TERRACE_REASONING_FORMAT", default_value = "auto", value_parser = format)]
    pub reasoning_format: ReasoningFormat,
    /// How hard models think, where requests do not say it: what their template knows, mostly low, medium
    /// or high; none: not at all
    #[arg(long, value_name = "LEVEL", env = "TERRACE_REASONING_EFFORT")]
    pub reasoning_effort: Option<String>,
    /// Maximum number of tokens of thoughts, for requests that set none; -1: no limit
    #[arg(long, value_name = "N", env = "TERRACE_REASONING_BUDGET", default_value_t = -1, value_parser = clap::value_parser!(i32).range(-1..), allow_negative_numbers = true)]
    pub reasoning_budget: i32,
    /// Variables of the chat template for requests that do not set them: a JSON object
    #[arg(long, value_name = "JSON", env = "TERRACE_CHAT_TEMPLATE_KWARGS", value_parser = object)]
    pub chat_template_kwargs: Option<Map<String, Value>>,
}

/// Whether models think.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Reasoning {
    /// Enabled.
    On,
    /// Disabled.
    Off,
    /// As the chat template has it.
    Auto,
}

fn format(name: &str) -> Result<ReasoningFormat, &'static str> {
    ReasoningFormat::from_name(name).ok_or("must be none, auto or deepseek")
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("is no JSON object: {error}"))
}

impl ThinkingArgs {
    /// What requests get that do not say it.
    pub fn defaults(&self) -> ChatDefaults {
        let Self { reasoning, reasoning_format, reasoning_effort, reasoning_budget, chat_template_kwargs } =
            self;
        let thinks = match reasoning {
            Reasoning::On => Some(true),
            Reasoning::Off => Some(false),
            Reasoning::Auto => None,
        };
        let mut variables = chat_template_kwargs.clone().unwrap_or_default();
        variables.extend(
            reasoning_effort.as_ref().map(|effort| ("reasoning_effort".into(), effort.as_str().into())),
        );
        ChatDefaults {
            thinks,
            format: *reasoning_format,
            thought_tokens: u32::try_from(*reasoning_budget).ok(),
            variables,
        }
    }
}
