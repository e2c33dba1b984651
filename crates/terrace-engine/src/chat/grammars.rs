//! Grammars of clients.

use super::ask::Ask;
use super::error::ChatTemplateError;
use super::pool::Pool;
use super::zeros::zero_in;
use std::sync::Arc;

/// Makes grammars of JSON schemas, and checks those of clients, in processes of their own.
#[derive(Debug, Clone)]
pub struct Grammars {
    pool: Arc<Pool>,
}

impl Default for Grammars {
    fn default() -> Self {
        Self { pool: Arc::new(Pool::new(None)) }
    }
}

impl Grammars {
    /// The grammar of all JSON texts that a JSON schema allows.
    ///
    /// # Errors
    /// [`ChatTemplateError::Schema`] if it is not valid or takes too much, [`ChatTemplateError::Process`].
    pub fn of_schema(&self, schema: &str) -> Result<String, ChatTemplateError> {
        let made = self.pool.lease()?.ask(&Ask::Schema(schema.into()));
        let grammar = made.map_err(|error| of_limit(error, ChatTemplateError::Schema))?;
        zero_in(&grammar).map_or(Ok(grammar), |reason| Err(ChatTemplateError::Schema(reason)))
    }

    /// Checks that a text is a grammar.
    ///
    /// # Errors
    /// [`ChatTemplateError::Grammar`], [`ChatTemplateError::Process`].
    pub fn check(&self, grammar: &str) -> Result<(), ChatTemplateError> {
        if let Some(reason) = zero_in(grammar) {
            return Err(ChatTemplateError::Grammar(reason));
        }
        let checked = self.pool.lease()?.ask(&Ask::Grammar(grammar.into()));
        checked.map(drop).map_err(|error| of_limit(error, ChatTemplateError::Grammar))
    }
}

/// The error of a limit, of this kind: no template takes part.
fn of_limit(error: ChatTemplateError, kind: fn(String) -> ChatTemplateError) -> ChatTemplateError {
    match error {
        ChatTemplateError::Limit(limit) => kind(limit.to_string()),
        error => error,
    }
}
