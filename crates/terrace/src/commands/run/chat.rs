//! A conversation on the terminal.

use super::chat_line::{ChatLine, HELP};
use super::{Output, chat_tokens, generate, written};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use serde_json::json;
use std::path::Path;
use terrace_cli::error::CliError;
use terrace_cli::term::{print_failure, say, signals};
use terrace_cli::whole_file;
use terrace_cli::written::CONVERSATION;
use terrace_engine::options::ThinkingOptions;
use terrace_engine::{
    Answer, ChatTemplate, Engine, EngineError, Limits, Message, Session, StopReason, Timings,
};
use terrace_ggml::llama::Sampling;
use terrace_plan::short_number;

/// Settings of a conversation's responses.
pub struct Answers<'a> {
    /// Their end.
    pub limits: Limits,
    /// Choice of their tokens.
    pub sampling: Sampling,
    /// Reasoning of the model.
    pub thinking: &'a ThinkingOptions,
}

/// Holds a conversation until Ctrl-D. Ctrl-C ends an answer or, at the prompt, the conversation.
///
/// # Errors
/// The terminal, the template or the engine fails.
pub fn converse(
    engine: &mut Engine,
    template: &ChatTemplate,
    mut talk: Vec<Message>,
    answers: &Answers<'_>,
) -> Result<(), CliError> {
    let mut lines = Vec::new();
    let mut held = Held { session: engine.session(), text: Vec::new() };
    say!("(/help lists the commands, /bye quits)");
    loop {
        let typed = match ask(&lines) {
            Ok(typed) => typed,
            Err(ReadlineError::Eof) => return Ok(()),
            Err(ReadlineError::Interrupted) => return Err(CliError::Interrupted),
            Err(error) => return Err(terminal(error)),
        };
        let line = ChatLine::parse(&typed);
        if line != ChatLine::Empty {
            lines.push(typed);
        }
        match line {
            ChatLine::Empty => {}
            ChatLine::Bye => return Ok(()),
            ChatLine::Help => say!("{HELP}"),
            ChatLine::Unusable(reason) => say!("({reason})"),
            ChatLine::Clear => {
                talk.retain(is_system);
                say!("(forgotten)");
            }
            ChatLine::System(None) => match talk.iter().find(|message| is_system(message)) {
                Some(message) => say!("{}", message.content),
                None => say!("(no system message)"),
            },
            ChatLine::System(Some(text)) => {
                talk.retain(|message| !is_system(message));
                talk.insert(0, Message::new("system", text));
                say!("(the system message is set)");
            }
            // The conversation goes on if its file cannot be written.
            ChatLine::Save(path) => match save(&path, &talk) {
                Ok(()) => say!("(saved to {})", path.display()),
                Err(error) => print_failure(&error),
            },
            ChatLine::Message(text) => {
                talk.push(Message::new("user", text));
                let (text, answer) = held.answer(engine, template, &mut talk, answers)?;
                talk.push(Message::new("assistant", text));
                let stopped = if signals::take() { "stopped, " } else { "" };
                say!("({stopped}{})", speed(&answer));
            }
        }
    }
}

fn is_system(message: &Message) -> bool {
    message.role == "system"
}

/// Writes a conversation as `{"messages": [{"role": ..., "content": ...}, ...]}`.
fn save(path: &Path, talk: &[Message]) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(&json!({ "messages": talk })).expect("messages are plain data");
    whole_file::write(path, &CONVERSATION, &format!("{text}\n"))
}

/// The length of an answer, and how fast it came.
fn speed(answer: &Answer) -> String {
    let Timings { ttft_ms, decode_tps, .. } = answer.timings;
    let first = ttft_ms / 1e3;
    match answer.tokens.len() {
        1 => format!("1 token after {first:.1} s"),
        tokens => {
            let rate = short_number(decode_tps);
            format!("{tokens} tokens, {rate} tokens/s, the first after {first:.1} s")
        }
    }
}

/// Reads one line from the user, or several between quotes. The editor lives no longer than this call:
/// while it exists it handles Ctrl-C itself, so that an answer could not be stopped.
fn ask(history: &[String]) -> Result<String, ReadlineError> {
    let mut editor = DefaultEditor::new()?;
    for line in history {
        editor.add_history_entry(line)?;
    }
    let mut typed = editor.readline("> ")?;
    while ChatLine::continues(&typed) {
        typed.push('\n');
        typed += &editor.readline("... ")?;
    }
    Ok(typed)
}

fn terminal(error: ReadlineError) -> CliError {
    CliError::io("terminal")(std::io::Error::other(error.to_string()))
}

/// A conversation's session, and its tokens as text. A new turn continues the session if the
/// rendered conversation begins with that text, and otherwise starts a new session (templates may
/// rewrite earlier turns, e.g. drop their thoughts).
struct Held {
    session: Session,
    text: Vec<u8>,
}

impl Held {
    fn answer(
        &mut self,
        engine: &mut Engine,
        template: &ChatTemplate,
        talk: &mut Vec<Message>,
        answers: &Answers<'_>,
    ) -> Result<(String, Answer), CliError> {
        loop {
            let (rendered, sampling) = written(template, talk, answers.thinking, &answers.sampling)?;
            let new = if self.text.is_empty() { None } else { continuation(&self.text, &rendered) };
            let prompt = match new {
                Some(text) => engine.tokenize(text, false, true)?,
                None => {
                    self.session = engine.session();
                    match chat_tokens(engine, &rendered) {
                        Err(CliError::Engine(EngineError::TextTooLong { .. })) if forget_oldest(talk) => {
                            say_forgotten(engine);
                            continue;
                        }
                        tokens => tokens?,
                    }
                }
            };
            let before = self.session.len();
            let full = before + prompt.len() >= engine.context_size();
            if full && forget_oldest(talk) {
                say_forgotten(engine);
                self.text.clear();
                continue;
            }
            if full {
                let (prompt, context) = (prompt.len(), engine.context_size());
                return Err(EngineError::PromptTooLong { prompt, used: before, context }.into());
            }
            let limits = answers.limits.clone();
            let generation =
                generate(engine, &mut self.session, &prompt, limits, &sampling, &mut Output::new(true))?;
            // Many conversations end with Ctrl-C.
            engine.save_record();
            let text = String::from_utf8_lossy(&generation.text).into_owned();
            // Only an answer that the model ended itself is in the context completely: the last
            // token of any other was chosen but not evaluated.
            let whole = self.session.len() == before + prompt.len() + generation.tokens.len();
            self.text.clear();
            if whole && generation.stop == StopReason::EndOfText {
                self.text.extend_from_slice(rendered.as_bytes());
                self.text.extend_from_slice(&generation.text);
            }
            return Ok((text, generation));
        }
    }
}

/// The part of `rendered` after `held`. `None` if it does not begin with `held`.
fn continuation<'a>(held: &[u8], rendered: &'a str) -> Option<&'a str> {
    let held = std::str::from_utf8(held).ok()?;
    rendered.strip_prefix(held).filter(|rest| !rest.is_empty())
}

fn say_forgotten(engine: &Engine) {
    say!("(the context of {} tokens is full: dropping the oldest turn)", engine.context_size());
}

/// Drops the first question and its answer. Returns false if only the last question is left.
fn forget_oldest(talk: &mut Vec<Message>) -> bool {
    let first = usize::from(talk.first().is_some_and(is_system));
    if talk.len() < first + 3 {
        return false;
    }
    talk.drain(first..first + 2);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_goes_on_behind_what_is_held() {
        assert_eq!(continuation(b"<u>a<m>b", "<u>a<m>b<e><u>c<m>"), Some("<e><u>c<m>"));
        assert_eq!(continuation(b"<u>a<m>b ", "<u>a<m>b<e><u>c<m>"), None, "trimmed by the template");
        assert_eq!(continuation(b"ab\xff", "ab\u{fffd}c"), None, "no text");
    }

    #[test]
    fn the_system_message_and_the_last_question_stay() {
        let talk = |roles: &[&str]| roles.iter().map(|r| Message::new(*r, *r)).collect::<Vec<_>>();
        let mut long = talk(&["system", "user", "assistant", "user"]);
        assert!(forget_oldest(&mut long));
        assert_eq!(long, talk(&["system", "user"]));
        assert!(!forget_oldest(&mut long));
        assert!(!forget_oldest(&mut talk(&["user"])));
    }
}
