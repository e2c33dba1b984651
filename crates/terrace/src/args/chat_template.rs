//! The chat template in place of the model's own.

use crate::error::CliError;
use crate::term::input;
use clap::Args;
use std::path::PathBuf;

/// The template that many models share, which llama.cpp knows by this name.
const CHATML: &str = "\
{%- for message in messages -%}
  {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
";

/// The chat template in place of the model's own.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sampling")]
pub struct ChatTemplateArgs {
    /// Chat template (Jinja source, or chatml) in place of the model's own
    #[arg(long, value_name = "TEMPLATE", conflicts_with = "chat_template_file")]
    pub chat_template: Option<String>,
    /// The same from a file
    #[arg(long, value_name = "FILE", env = "TERRACE_CHAT_TEMPLATE_FILE")]
    pub chat_template_file: Option<PathBuf>,
}

impl ChatTemplateArgs {
    /// The template; `None` for the model's own.
    ///
    /// # Errors
    /// The file cannot be read, or the text is a name.
    pub fn source(&self) -> Result<Option<String>, CliError> {
        let Self { chat_template, chat_template_file } = self;
        match (chat_template, chat_template_file) {
            (Some(name), _) if name == "chatml" => Ok(Some(CHATML.to_owned())),
            (Some(text), _) if !text.contains('{') => Err(CliError::Usage {
                message: format!("`{text}` writes the same for every conversation"),
                hint: "--chat-template takes a template's text, or chatml; give a file with --chat-template-file"
                    .into(),
            }),
            (Some(text), _) => Ok(Some(text.clone())),
            (None, Some(file)) => input::file(file).map(Some),
            (None, None) => Ok(None),
        }
    }
}
