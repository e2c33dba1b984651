//! State of a worker between two requests: its template, and the response that it reads.

use super::ask::{Ask, MEMORY_MIB};
use super::error::{ChatTemplateError, Limit};
use terrace_ggml::CxxError;
use terrace_ggml::common::{AnswerReader, Templates, check_grammar, schema_grammar};

/// Longest text that is handed back, in MiB.
const OUTPUT_MIB: usize = 32;

/// A worker's template, and the answer that it reads.
#[derive(Default)]
pub(super) struct Desk {
    templates: Option<Templates>,
    reader: Option<AnswerReader>,
}

impl Desk {
    /// Answers a question.
    ///
    /// # Errors
    /// [`ChatTemplateError`].
    pub(super) fn answer(&mut self, ask: &Ask<'_>) -> Result<String, ChatTemplateError> {
        let text = self.answer_of(ask)?;
        if text.len() > OUTPUT_MIB << 20 {
            return Err(ChatTemplateError::Limit(Limit::Output(OUTPUT_MIB)));
        }
        Ok(text)
    }

    fn answer_of(&mut self, ask: &Ask<'_>) -> Result<String, ChatTemplateError> {
        let none = |what: &str| ChatTemplateError::Process(format!("it was asked without {what}"));
        match ask {
            Ask::Parse(source) => {
                let parsed =
                    of(Templates::parse(&source.text, &source.bos, &source.eos), ChatTemplateError::Syntax)?;
                let caps = of(parsed.caps(), ChatTemplateError::Render)?;
                self.templates = Some(parsed);
                Ok(caps)
            }
            Ask::Apply(request) => {
                let templates = self.templates.as_ref().ok_or_else(|| none("a template"))?;
                let applied = of(templates.apply(request), ChatTemplateError::Render)?;
                check_applied(&applied)?;
                Ok(applied)
            }
            Ask::Read(how) => {
                self.reader = Some(of(AnswerReader::new(how), ChatTemplateError::Answer)?);
                Ok(String::new())
            }
            Ask::Push { text, more } => {
                let reader = self.reader.as_mut().ok_or_else(|| none("an answer"))?;
                of(reader.push(text, *more), ChatTemplateError::Answer)
            }
            Ask::Schema(schema) => {
                let grammar = of(schema_grammar(schema), ChatTemplateError::Schema)?;
                of(check_grammar(&grammar), ChatTemplateError::Schema)?;
                Ok(grammar)
            }
            Ask::Grammar(grammar) => {
                of(check_grammar(grammar), ChatTemplateError::Grammar)?;
                Ok(String::new())
            }
        }
    }
}

/// Checks the grammar that came with a prompt: it is parsed again where nothing bounds that.
fn check_applied(applied: &str) -> Result<(), ChatTemplateError> {
    #[derive(serde::Deserialize)]
    struct WithGrammar {
        grammar: String,
    }
    let WithGrammar { grammar } = serde_json::from_str(applied)
        .map_err(|error| ChatTemplateError::Render(format!("its output is not text: {error}")))?;
    if grammar.is_empty() { Ok(()) } else { of(check_grammar(&grammar), ChatTemplateError::Grammar) }
}

fn of<T>(result: Result<T, CxxError>, kind: fn(String) -> ChatTemplateError) -> Result<T, ChatTemplateError> {
    result.map_err(|thrown| ChatTemplateError::of(thrown, kind, MEMORY_MIB))
}
