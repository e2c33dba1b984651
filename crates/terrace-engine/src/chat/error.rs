//! Why a chat template, a schema or a grammar could not be used.

use serde::{Deserialize, Serialize};
use terrace_ggml::CxxError;

/// Why a chat template, a schema or a grammar could not be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ChatTemplateError {
    /// The template's text is not valid Jinja.
    #[error("cannot parse the model's chat template: {0}")]
    Syntax(String),
    /// The template itself refused the conversation (`raise_exception`).
    #[error("the model's chat template rejects this conversation: {0}")]
    Refused(String),
    /// The template failed while it was applied.
    #[error("cannot apply the model's chat template: {0}")]
    Render(String),
    /// The template has no place for tools, and would leave them out.
    #[error("the model's chat template does not support tools")]
    NoTools,
    /// The answer has not the form that the template gives answers.
    #[error("cannot parse the model's output: {0}")]
    Answer(String),
    /// The JSON schema cannot be made a grammar.
    #[error("cannot use the JSON schema: {0}")]
    Schema(String),
    /// The grammar is not valid.
    #[error("cannot use the grammar: {0}")]
    Grammar(String),
    /// It took too much of something.
    #[error("cannot apply the model's chat template: {0}")]
    Limit(Limit),
    /// There is no process that could apply it.
    #[error("cannot start the process that applies chat templates: {0}")]
    Process(String),
}

/// Resources of which a template may take too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Limit {
    /// Seconds of computing.
    #[error("it takes more than {0} s")]
    Time(u64),
    /// Memory: its values, or its calls within calls.
    #[error("it takes more than {0} MiB of memory, or recurses too deeply")]
    Memory(u64),
    /// Its text.
    #[error("it writes more than {0} MiB")]
    Output(usize),
}

/// The prefix of `raise_exception` before the template's own words.
const RAISED: &str = "Jinja Exception: ";

/// The prefix of llama.cpp's engine before the reason, after lines of context.
const REASON: &str = "Error: ";

/// The prefix of llama.cpp's converter of JSON schemas before the reasons, each on a line.
const CONVERSION: &str = "JSON schema conversion failed:";

/// The message of `std::bad_alloc`.
const NO_MEMORY: &str = "std::bad_alloc";

impl ChatTemplateError {
    /// The error for what llama.cpp threw, of a kind; `memory` is what it may take, in MiB.
    pub(super) fn of(thrown: CxxError, kind: fn(String) -> Self, memory: u64) -> Self {
        let text = match thrown {
            CxxError::Memory => return Self::Limit(Limit::Memory(memory)),
            CxxError::Exception(text) | CxxError::Assertion(text) => text,
            other => other.to_string(),
        };
        if text.contains(NO_MEMORY) {
            return Self::Limit(Limit::Memory(memory));
        }
        if let Some((_, words)) = text.split_once(RAISED) {
            return Self::Refused(one_line(words));
        }
        // No template has a part in that, whatever was asked for.
        if let Some((_, reasons)) = text.split_once(CONVERSION) {
            return Self::Schema(one_line(reasons));
        }
        let reason = text.rsplit_once(REASON).map_or(text.as_str(), |(_, reason)| reason);
        match line_of(&text) {
            Some(line) => kind(format!("{} (line {line})", one_line(reason))),
            None => kind(one_line(reason)),
        }
    }

    /// Returns true if the process in which it arose may be used again; if not, it has ended.
    pub const fn is_harmless(&self) -> bool {
        !matches!(self, Self::Limit(_) | Self::Process(_))
    }
}

/// The innermost line of a template that an error names.
fn line_of(text: &str) -> Option<u64> {
    let (_, after) = text.rsplit_once(" at line ")?;
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// The first line with words, without control characters.
fn one_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no reason is given");
    line.chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_are_refused_with_the_converters_reason() {
        let thrown = CxxError::Exception(format!("{CONVERSION}\nunrecognized type foo"));
        let error = ChatTemplateError::of(thrown, ChatTemplateError::Schema, 512);
        assert_eq!(error.to_string(), "cannot use the JSON schema: unrecognized type foo");
    }

    #[test]
    fn reasons_are_one_line() {
        let of = |text: &str| {
            ChatTemplateError::of(CxxError::Exception(text.into()), ChatTemplateError::Render, 512)
                .to_string()
        };
        assert_eq!(
            of(
                "\n------------\nWhile executing CallExpression at line 3, column 5 in source:\n...{{ f() }}...\n   ^\nError: no f"
            ),
            "cannot apply the model's chat template: no f (line 3)"
        );
        assert_eq!(
            of(
                "\nWhile executing X at line 1, column 2 in source:\n...\nError: Jinja Exception: roles must alternate"
            ),
            "the model's chat template rejects this conversation: roles must alternate"
        );
        assert_eq!(
            of("\nError: std::bad_alloc"),
            "cannot apply the model's chat template: it takes more than 512 MiB of memory, or recurses too deeply"
        );
        assert_eq!(of(""), "cannot apply the model's chat template: no reason is given");
    }
}
