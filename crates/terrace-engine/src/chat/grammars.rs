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
    /// [`ChatTemplateError::Schema`], [`ChatTemplateError::Grammar`] if it is too large,
    /// [`ChatTemplateError::Limit`], [`ChatTemplateError::Process`].
    pub fn of_schema(&self, schema: &str) -> Result<String, ChatTemplateError> {
        let grammar = self.pool.lease()?.ask(&Ask::Schema(schema.into()))?;
        zero_in(&grammar).map_or(Ok(grammar), |reason| Err(ChatTemplateError::Schema(reason)))
    }

    /// Checks that a text is a grammar.
    ///
    /// # Errors
    /// As [`Grammars::of_schema`].
    pub fn check(&self, grammar: &str) -> Result<(), ChatTemplateError> {
        if let Some(reason) = zero_in(grammar) {
            return Err(ChatTemplateError::Grammar(reason));
        }
        self.pool.lease()?.ask(&Ask::Grammar(grammar.into())).map(drop)
    }
}
