//! The chat template in place of the model's own.

use crate::error::CliError;
use crate::term::input;
use clap::Args;
use std::path::PathBuf;
use terrace_ggml::common::template_names;

/// The chat template in place of the model's own.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Chat")]
pub struct ChatTemplateArgs {
    /// Chat template in place of the model's own: Jinja source, or the name of one of llama.cpp's (chatml,
    /// llama3, gemma and so on), which supports neither tools nor reasoning
    #[arg(long, value_name = "TEMPLATE", conflicts_with = "chat_template_file")]
    pub chat_template: Option<String>,
    /// Read the chat template from a file
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
        let source = input::text_or_file(chat_template, chat_template_file)?;
        let usage = |message, hint| Err(CliError::Usage { message, hint });
        match (&source, chat_template_file) {
            (Some(text), file) if text.trim().is_empty() => {
                let place = file.as_ref().map(|file| format!("{}: ", file.display())).unwrap_or_default();
                let hint = "leave out --chat-template and --chat-template-file to use the model's own";
                usage(format!("{place}the chat template is empty"), hint.into())
            }
            (Some(text), None) if !text.contains('{') && !template_names().contains(text) => usage(
                format!("`{text}` is neither Jinja source nor a template of llama.cpp's"),
                format!("use its text, --chat-template-file, or one of {}", template_names().join(", ")),
            ),
            _ => Ok(source),
        }
    }
}
