//! The form of Ollama's answers.

use super::error::error_object;
use super::time::time;
use crate::answer::{AnswerPart, Call, Done, Form, Frame, Framing, facts};
use crate::error::ApiError;
use chrono::Utc;
use serde_json::{Value, json as object};
use std::time::Instant;
use terrace_engine::{Delta, StopReason};

/// Which of the two endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Generate,
    Chat,
}

/// Answers in Ollama's form.
pub struct Ollama {
    pub kind: Kind,
    pub model: String,
    pub begin: Instant,
}

impl Ollama {
    /// An object of the stream, or the only one.
    pub fn object(&self, text: String, done: bool) -> Value {
        let mut value = object!({"model": self.model, "created_at": time(Utc::now()), "done": done});
        match self.kind {
            Kind::Generate => value["response"] = text.into(),
            Kind::Chat => value["message"] = object!({"role": "assistant", "content": text}),
        }
        value
    }

    /// The object after the last piece; it has the whole text if that was not streamed.
    fn last(&self, text: &str, done: &Done) -> Value {
        let answer = &done.answer;
        let mut value = self.object(text.into(), true);
        let nanoseconds = |ms: f64| (ms * 1e6) as u64;
        value["done_reason"] = match answer.stop {
            StopReason::EndOfText | StopReason::StopString => "stop",
            StopReason::Length | StopReason::ContextFull | StopReason::Cancelled => "length",
        }
        .into();
        value["total_duration"] = nanoseconds(self.begin.elapsed().as_secs_f64() * 1e3).into();
        value["load_duration"] = 0.into();
        value["prompt_eval_count"] = answer.prompt_tokens.into();
        value["prompt_eval_duration"] = nanoseconds(answer.timings.prompt_ms).into();
        value["eval_count"] = answer.tokens.len().into();
        value["eval_duration"] = nanoseconds(answer.timings.decode_ms).into();
        value["terrace"] = facts(done);
        value
    }

    /// Adds thoughts to an object.
    fn think(&self, value: &mut Value, thoughts: &str) {
        match self.kind {
            Kind::Generate => value["thinking"] = thoughts.into(),
            Kind::Chat => value["message"]["thinking"] = thoughts.into(),
        }
    }
}

/// A call of a tool: its arguments are an object here.
fn call(call: &Call) -> Value {
    let arguments = serde_json::from_str(&call.arguments).unwrap_or_else(|_| object!({}));
    object!({"id": call.id, "function": {"name": call.name, "arguments": arguments}})
}

impl Form for Ollama {
    fn whole(&mut self, mut all: Vec<Done>) -> Value {
        let Some(done) = all.pop() else { return Value::Null };
        let mut value = self.last(&done.content, &done);
        if !done.thoughts.is_empty() {
            self.think(&mut value, &done.thoughts);
        }
        if !done.calls.is_empty() && self.kind == Kind::Chat {
            value["message"]["tool_calls"] = done.calls.iter().map(call).collect();
        }
        value
    }

    fn part(&mut self, _: usize, part: AnswerPart) -> Vec<Frame> {
        match part {
            AnswerPart::Delta(Delta::Text(text)) => vec![self.object(text, false).into()],
            AnswerPart::Delta(Delta::Thought(text)) => {
                let mut value = self.object(String::new(), false);
                self.think(&mut value, &text);
                vec![value.into()]
            }
            // Calls are sent whole.
            AnswerPart::Delta(Delta::Call { .. })
            | AnswerPart::Probs(_)
            | AnswerPart::Token(_)
            | AnswerPart::Scored(_)
            | AnswerPart::Progress(_) => Vec::new(),
        }
    }

    fn end(&mut self, _: usize, done: &Done) -> Vec<Frame> {
        let mut frames = Vec::new();
        // One call per object, as Ollama sends them: clients, Zed among them, read the first one only.
        let calls = done.calls.iter().filter(|_| self.kind == Kind::Chat);
        for made in calls {
            let mut value = self.object(String::new(), false);
            value["message"]["tool_calls"] = object!([call(made)]);
            frames.push(value.into());
        }
        frames.push(self.last("", done).into());
        frames
    }

    fn error(&self, error: &ApiError) -> Frame {
        error_object(error).into()
    }

    fn framing(&self) -> Framing {
        Framing::Lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_engine::{Answer, Timings};

    fn done() -> Done {
        let answer = Answer {
            tokens: vec![1; 9],
            probs: Vec::new(),
            text: Vec::new(),
            stop: StopReason::EndOfText,
            stop_string: None,
            prompt_tokens: 5,
            reused: 0,
            timings: Timings::default(),
            queued_ms: 0.0,
            epochs: (0, 0),
            decode: None,
            experts: None,
            lossy: None,
        };
        let call =
            |id: &str, arguments: &str| Call { id: id.into(), name: "f".into(), arguments: arguments.into() };
        Done {
            content: String::new(),
            thoughts: String::new(),
            thought_tokens: 0,
            calls: vec![call("c1", "{}"), call("c2", r#"{"a": 1}"#)],
            scored: None,
            unenforced: Vec::new(),
            answer,
        }
    }

    fn form(kind: Kind) -> Ollama {
        Ollama { kind, model: "m".into(), begin: Instant::now() }
    }

    #[test]
    fn each_call_of_a_stream_has_an_object_of_its_own() {
        let frames = form(Kind::Chat).end(0, &done());
        let calls: Vec<&Value> = frames.iter().map(|frame| &frame.data["message"]["tool_calls"]).collect();
        let one = |id: &str, arguments: Value| object!([{"id": id, "function": {"name": "f", "arguments": arguments}}]);
        assert_eq!(calls, [&one("c1", object!({})), &one("c2", object!({"a": 1})), &Value::Null]);
        assert_eq!(
            frames.iter().map(|frame| &frame.data["done"]).collect::<Vec<_>>(),
            [&object!(false), &object!(false), &object!(true)]
        );
        // A prompt has no tools.
        assert_eq!(form(Kind::Generate).end(0, &done()).len(), 1);
    }

    #[test]
    fn an_answer_that_is_not_streamed_has_all_calls() {
        let value = form(Kind::Chat).whole(vec![done()]);
        assert_eq!(value["message"]["tool_calls"].as_array().map(Vec::len), Some(2));
    }
}
