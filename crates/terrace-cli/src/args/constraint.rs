//! Constraints of responses.

use crate::error::CliError;
use crate::term::input;
use clap::Args;
use std::path::PathBuf;
use terrace_engine::{Grammars, Schema};
use terrace_ggml::llama::{Grammar, Purpose};

/// Constraints of responses.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sampling")]
#[group(multiple = false)]
pub struct ConstraintArgs {
    /// Constrain the text to this grammar, in llama.cpp's form (GBNF)
    #[arg(long, value_name = "GRAMMAR")]
    pub grammar: Option<String>,
    /// Constrain the text to the grammar in this file
    #[arg(long, value_name = "FILE")]
    pub grammar_file: Option<PathBuf>,
    /// Constrain the text to JSON that follows this schema; `{}` for any JSON
    #[arg(long, value_name = "SCHEMA")]
    pub json_schema: Option<String>,
    /// Constrain the text to JSON that follows the schema in this file
    #[arg(long, value_name = "FILE")]
    pub json_schema_file: Option<PathBuf>,
}

impl ConstraintArgs {
    /// The grammar that these options ask for; `None` if none does.
    ///
    /// # Errors
    /// A file cannot be read; the grammar or the schema is not valid.
    pub fn grammar(&self) -> Result<Option<Grammar>, CliError> {
        let Self { grammar, grammar_file, json_schema, json_schema_file } = self;
        if let Some(text) = input::text_or_file(grammar, grammar_file)? {
            Grammars::default().check(&text)?;
            return Ok(Some(Grammar { text, purpose: Purpose::User, ..Grammar::default() }));
        }
        let Some(schema) = input::text_or_file(json_schema, json_schema_file)? else { return Ok(None) };
        let Schema { text, unenforced, .. } = Schema::parse(&schema)?;
        if !unenforced.is_empty() {
            tracing::warn!(
                "the text need not follow these keywords of the JSON schema: {}",
                unenforced.join(", ")
            );
        }
        let text = Grammars::default().of_schema(&text)?;
        Ok(Some(Grammar { text, purpose: Purpose::Format, ..Grammar::default() }))
    }
}
