//! Grammars of clients.

use super::ask::Ask;
use super::error::ChatTemplateError;
use super::pool::Pool;
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
        self.pool.lease()?.ask(&Ask::Schema(schema.into()))
    }

    /// Checks that a text is a grammar.
    ///
    /// # Errors
    /// As [`Grammars::of_schema`].
    pub fn check(&self, grammar: &str) -> Result<(), ChatTemplateError> {
        self.pool.lease()?.ask(&Ask::Grammar(grammar.into())).map(drop)
    }
}
