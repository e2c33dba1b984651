//! Grammars in llama.cpp's form (GBNF).

use super::text::{Sink, Text};
use super::{bounded, call, owned};
use crate::cxx::CxxError;
use crate::cxx::bounds::Bounds;
use crate::log;

unsafe extern "C-unwind" {
    fn terrace_schema_grammar(schema: Text<'_>, out: Sink<'_>);
    fn terrace_check_grammar(text: Text<'_>);
    fn terrace_grammar_accepts(grammar: Text<'_>, text: Text<'_>) -> bool;
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

/// Bounds of the check of a grammar. A sampler with the grammar may take more, so that it does not
/// fail where llama.cpp would leave parts of it behind.
pub(crate) const CHECK: Bounds = Bounds { steps: 5_000_000, bytes: 64 << 20, stack: 512 << 10 };

/// Checks that a text is a grammar with a rule `root`, of which a sampler can be made on a thread with the
/// usual stack.
///
/// # Errors
/// What llama.cpp says of it, or what it takes too much of.
pub fn check_grammar(grammar: &str) -> Result<(), CxxError> {
    let text = Text::of(grammar);
    // SAFETY: the text lives during the call.
    let (checked, lines) = log::capture(|| bounded(CHECK, || unsafe { terrace_check_grammar(text) }));
    checked.map_err(|error| match (error, lines.last()) {
        (CxxError::Exception(_), Some(line)) => CxxError::Exception(line.clone()),
        (error, _) => error,
    })
}

/// Returns true if `text` as a whole is one of the grammar's.
///
/// # Errors
/// As [`check_grammar`], or the text takes too much of the grammar.
pub fn grammar_accepts(grammar: &str, text: &str) -> Result<bool, CxxError> {
    check_grammar(grammar)?;
    let (grammar, text) = (Text::of(grammar), Text::of(text));
    // SAFETY: the texts live during the call.
    bounded(CHECK, || unsafe { terrace_grammar_accepts(grammar, text) })
}
