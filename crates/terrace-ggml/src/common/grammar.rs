//! Grammars in llama.cpp's form (GBNF).

use super::text::{Sink, Text};
use super::{call, owned};
use crate::cxx::CxxError;
use crate::log;

unsafe extern "C-unwind" {
    fn terrace_schema_grammar(schema: Text<'_>, out: Sink<'_>);
    fn terrace_check_grammar(text: Text<'_>);
}

/// The grammar of all JSON texts that a JSON schema allows.
///
/// # Errors
/// What of the schema is not valid or not supported.
pub fn schema_grammar(schema: &str) -> Result<String, CxxError> {
    let mut text = Vec::new();
    let (schema, out) = (Text::of(schema), Sink::of(&mut text));
    // SAFETY: the texts live during the call.
    call(|| unsafe { terrace_schema_grammar(schema, out) })?;
    Ok(owned(text))
}

/// Checks that a text is a grammar with a rule `root`.
///
/// # Errors
/// What llama.cpp says of it.
pub fn check_grammar(grammar: &str) -> Result<(), CxxError> {
    let text = Text::of(grammar);
    // SAFETY: the text lives during the call.
    let (checked, lines) = log::capture(|| call(|| unsafe { terrace_check_grammar(text) }));
    checked.map_err(|error| match (error, lines.last()) {
        (CxxError::Exception(_), Some(line)) => CxxError::Exception(line.clone()),
        (error, _) => error,
    })
}
