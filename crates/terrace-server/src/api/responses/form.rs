//! Answers in the form of OpenAI's responses: a list of items, and events about each of them.

use super::items::{Item, Kind};
use super::tools::Names;
use crate::answer::{AnswerPart, Done, Form, Frame, Framing, facts, progress, progress_timings, timings};
use crate::api::openai::aligned::Aligned;
use crate::api::openai::probs;
use crate::app::unix_seconds;
use crate::error::ApiError;
use serde_json::{Value, json};
use terrace_engine::{Delta, StopReason};

pub struct Response {
    /// The object, without its items.
    object: Value,
    /// Clients' names of the tools.
    names: Names,
    /// True if thoughts are given in a form in which clients give them back.
    gives_thoughts: bool,
    /// True if a stream tells how much of the prompt is done.
    tells_progress: bool,
    /// The number of the next event.
    sequence: u64,
    /// Items that have ended.
    output: Vec<Value>,
    open: Option<Item>,
    /// Tokens whose text is still to come.
    probs: Aligned,
}

impl Response {
    /// Makes a response out of its first state.
    pub fn new(object: Value, names: Names, gives_thoughts: bool) -> Self {
        let (output, probs, tells_progress) = (Vec::new(), Aligned::default(), false);
        Self { object, names, gives_thoughts, tells_progress, sequence: 0, output, open: None, probs }
    }

    /// Sets whether a stream tells how much of the prompt is done.
    pub const fn telling_progress(mut self, tells: bool) -> Self {
        self.tells_progress = tells;
        self
    }

    fn event(&mut self, name: &'static str, mut data: Value) -> Frame {
        data["type"] = name.into();
        data["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        Frame { event: Some(name), data }
    }

    /// An event about the open item.
    fn item_event(&mut self, (name, mut data): (&'static str, Value)) -> Frame {
        data["output_index"] = self.output.len().into();
        self.event(name, data)
    }

    /// Ends the open item, if it is not of this kind, and begins one.
    fn open(&mut self, kind: Kind, begin: impl FnOnce(&Names) -> Item, frames: &mut Vec<Frame>) {
        if self.open.as_ref().is_some_and(|open| open.kind == kind) {
            return;
        }
        self.close("completed", frames);
        let item = begin(&self.names);
        let events = item.added();
        self.open = Some(item);
        frames.extend(events.into_iter().map(|event| self.item_event(event)));
    }

    fn close(&mut self, status: &str, frames: &mut Vec<Frame>) {
        let Some(item) = self.open.take() else { return };
        let (events, done) = item.done(status, self.gives_thoughts);
        frames.extend(events.into_iter().map(|event| self.item_event(event)));
        self.output.push(done);
    }

    /// Adds to the open item.
    fn add(&mut self, text: &str, frames: &mut Vec<Frame>) {
        let probs = match self.open.as_ref().map(|item| item.kind) {
            Some(Kind::Text) => match probs::of_chat(&self.probs.content(text))["content"].take() {
                Value::Array(all) => all,
                _ => Vec::new(),
            },
            Some(Kind::Thoughts) => {
                self.probs.thought(text);
                Vec::new()
            }
            Some(Kind::Call(_)) | None => Vec::new(),
        };
        if let Some(event) = self.open.as_mut().and_then(|item| item.delta(text, probs)) {
            frames.push(self.item_event(event));
        }
    }

    /// Ends the items, and completes the object. An answer is never without an item: clients look
    /// for the first one.
    fn complete(&mut self, done: &Done, frames: &mut Vec<Frame>) {
        let cut = cut_off(done.answer.stop);
        if self.open.is_none() && self.output.is_empty() {
            self.open(Kind::Text, |_| Item::text(), frames);
        }
        self.close(if cut { "incomplete" } else { "completed" }, frames);
        let response = &mut self.object;
        if cut {
            response["status"] = "incomplete".into();
            response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        } else {
            response["status"] = "completed".into();
            response["completed_at"] = unix_seconds().into();
        }
        response["output"] = self.output.clone().into();
        response["usage"] = usage(done);
        response["terrace"] = facts(done);
    }
}

impl Form for Response {
    fn whole(&mut self, mut all: Vec<Done>) -> Value {
        let Some(done) = all.pop() else { return Value::Null };
        let mut parts = vec![AnswerPart::Probs(done.answer.probs.clone())];
        if !done.thoughts.is_empty() {
            parts.push(AnswerPart::Delta(Delta::Thought(done.thoughts.clone())));
        }
        if !done.content.is_empty() {
            parts.push(AnswerPart::Delta(Delta::Text(done.content.clone())));
        }
        parts.extend(done.calls.iter().enumerate().map(|(index, call)| {
            let (id, name) = (Some(call.id.clone()), Some(call.name.clone()));
            AnswerPart::Delta(Delta::Call { index, id, name, arguments: call.arguments.clone() })
        }));
        for part in parts {
            self.part(0, part);
        }
        self.complete(&done, &mut Vec::new());
        let mut value = std::mem::take(&mut self.object);
        value["timings"] = timings(&done.answer);
        value
    }

    fn begin(&mut self) -> Vec<Frame> {
        let object = json!({"response": self.object});
        vec![self.event("response.created", object.clone()), self.event("response.in_progress", object)]
    }

    fn part(&mut self, _: usize, part: AnswerPart) -> Vec<Frame> {
        let mut frames = Vec::new();
        match part {
            AnswerPart::Probs(all) => {
                self.probs.push(all);
            }
            AnswerPart::Token(_) | AnswerPart::Scored(_) => {}
            AnswerPart::Progress(_) if !self.tells_progress => {}
            AnswerPart::Progress(done) => {
                let (told, timings) = (progress(&done), progress_timings(&done));
                let data = json!({"response": self.object, "prompt_progress": told, "timings": timings});
                frames.push(self.event("response.in_progress", data));
            }
            AnswerPart::Delta(Delta::Text(text)) => {
                self.open(Kind::Text, |_| Item::text(), &mut frames);
                self.add(&text, &mut frames);
            }
            AnswerPart::Delta(Delta::Thought(text)) => {
                self.open(Kind::Thoughts, |_| Item::thoughts(), &mut frames);
                self.add(&text, &mut frames);
            }
            AnswerPart::Delta(Delta::Call { index, id, name, arguments }) => {
                let begin = |names: &Names| Item::call(index, id, name, names);
                self.open(Kind::Call(index), begin, &mut frames);
                self.add(&arguments, &mut frames);
            }
        }
        frames
    }

    fn end(&mut self, _: usize, done: &Done) -> Vec<Frame> {
        let mut frames = Vec::new();
        self.complete(done, &mut frames);
        let name = if cut_off(done.answer.stop) { "response.incomplete" } else { "response.completed" };
        let data = json!({"response": self.object, "timings": timings(&done.answer)});
        frames.push(self.event(name, data));
        frames
    }

    fn error(&self, error: &ApiError) -> Frame {
        const NAME: &str = "response.failed";
        let mut response = self.object.clone();
        response["status"] = "failed".into();
        response["error"] =
            json!({"code": error.code().unwrap_or("server_error"), "message": error.message()});
        response["output"] = self.output.clone().into();
        let data = json!({"type": NAME, "sequence_number": self.sequence, "response": response});
        Frame { event: Some(NAME), data }
    }

    fn framing(&self) -> Framing {
        Framing::Events { done: false }
    }
}

const fn cut_off(stop: StopReason) -> bool {
    match stop {
        StopReason::EndOfText | StopReason::StopString => false,
        StopReason::Length | StopReason::ContextFull | StopReason::Cancelled => true,
    }
}

fn usage(done: &Done) -> Value {
    let (prompt, tokens) = (done.answer.prompt_tokens, done.answer.tokens.len());
    json!({
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": done.answer.reused, "cache_write_tokens": 0},
        "output_tokens": tokens,
        "output_tokens_details": {"reasoning_tokens": done.thought_tokens},
        "total_tokens": prompt + tokens,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Call;
    use crate::api::responses::tools::Named;
    use terrace_engine::{Answer, Timings};

    fn done(stop: StopReason) -> Done {
        let answer = Answer {
            tokens: vec![1; 9],
            probs: Vec::new(),
            text: Vec::new(),
            stop,
            stop_string: None,
            prompt_tokens: 5,
            reused: 2,
            timings: Timings::default(),
            queued_ms: 0.0,
            epochs: (0, 0),
            decode: None,
            experts: None,
            lossy: None,
        };
        Done {
            content: "Well.".into(),
            thoughts: "hm".into(),
            thought_tokens: 3,
            calls: vec![
                Call { id: "c1".into(), name: "f".into(), arguments: "{}".into() },
                Call { id: "c2".into(), name: "patch".into(), arguments: r#"{"input": "a\nb"}"#.into() },
            ],
            scored: None,
            unenforced: Vec::new(),
            answer,
        }
    }

    fn response() -> Response {
        let patch = Named { name: "patch".into(), namespace: None, is_custom: true };
        Response::new(json!({"id": "resp_1", "output": []}), Names::from([("patch".into(), patch)]), true)
    }

    /// The deltas of [`done`].
    fn parts() -> Vec<AnswerPart> {
        let call = |index, id: Option<&str>, arguments: &str| Delta::Call {
            index,
            id: id.map(Into::into),
            name: id.map(|_| if index == 0 { "f" } else { "patch" }.into()),
            arguments: arguments.into(),
        };
        let deltas = [
            Delta::Thought("h".into()),
            Delta::Thought("m".into()),
            Delta::Text("Well".into()),
            Delta::Text(".".into()),
            call(0, Some("c1"), ""),
            call(0, None, "{}"),
            call(1, Some("c2"), r#"{"input": "#),
            call(1, None, r#""a\nb"}"#),
        ];
        deltas.into_iter().map(AnswerPart::Delta).collect()
    }

    /// The output without its random identifications.
    fn output(value: &Value) -> Value {
        let mut output = value["output"].clone();
        output.as_array_mut().unwrap().iter_mut().for_each(|item| drop(item["id"].take()));
        output
    }

    #[test]
    fn thoughts_text_and_calls_are_items_in_order() {
        let whole = response().whole(vec![done(StopReason::EndOfText)]);
        let part = |kind: &str, text: &str| json!({"type": kind, "text": text});
        let mut text = part("output_text", "Well.");
        text["annotations"] = json!([]);
        text["logprobs"] = json!([]);
        let expected = json!([
            {
                "id": null, "type": "reasoning", "status": "completed", "summary": [],
                "content": [part("reasoning_text", "hm")], "encrypted_content": "terrace:hm",
            },
            {"id": null, "type": "message", "status": "completed", "role": "assistant", "content": [text]},
            {"id": null, "type": "function_call", "status": "completed", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"id": null, "type": "custom_tool_call", "status": "completed", "call_id": "c2", "name": "patch", "input": "a\nb"},
        ]);
        assert_eq!(output(&whole), expected);
        let usage = json!({
            "input_tokens": 5,
            "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
            "output_tokens": 9,
            "output_tokens_details": {"reasoning_tokens": 3},
            "total_tokens": 14,
        });
        assert_eq!((&whole["status"], &whole["usage"]), (&json!("completed"), &usage));

        let mut form = response();
        let mut frames = form.begin();
        parts().into_iter().for_each(|part| frames.extend(form.part(0, part)));
        frames.extend(form.end(0, &done(StopReason::EndOfText)));
        assert_eq!(output(&frames.last().unwrap().data["response"]), expected);
        let expected = [
            ("response.created", None),
            ("response.in_progress", None),
            ("response.output_item.added", Some(0)),
            ("response.content_part.added", Some(0)),
            ("response.reasoning_text.delta", Some(0)),
            ("response.reasoning_text.delta", Some(0)),
            ("response.reasoning_text.done", Some(0)),
            ("response.content_part.done", Some(0)),
            ("response.output_item.done", Some(0)),
            ("response.output_item.added", Some(1)),
            ("response.content_part.added", Some(1)),
            ("response.output_text.delta", Some(1)),
            ("response.output_text.delta", Some(1)),
            ("response.output_text.done", Some(1)),
            ("response.content_part.done", Some(1)),
            ("response.output_item.done", Some(1)),
            ("response.output_item.added", Some(2)),
            ("response.function_call_arguments.delta", Some(2)),
            ("response.function_call_arguments.done", Some(2)),
            ("response.output_item.done", Some(2)),
            ("response.output_item.added", Some(3)),
            ("response.custom_tool_call_input.delta", Some(3)),
            ("response.custom_tool_call_input.done", Some(3)),
            ("response.output_item.done", Some(3)),
            ("response.completed", None),
        ];
        assert_eq!(frames.len(), expected.len());
        for (number, (frame, (name, index))) in frames.iter().zip(expected).enumerate() {
            assert_eq!((frame.event, &frame.data["type"]), (Some(name), &json!(name)));
            assert_eq!(frame.data["sequence_number"], number);
            assert_eq!(frame.data["output_index"].as_u64(), index, "{name}");
        }
    }

    #[test]
    fn an_answer_that_is_cut_off_or_fails_says_so() {
        let mut form = response();
        form.part(0, AnswerPart::Delta(Delta::Text("Well".into())));
        let frames = form.end(0, &done(StopReason::Length));
        let last = frames.last().unwrap();
        assert_eq!(last.event, Some("response.incomplete"));
        assert_eq!(last.data["response"]["incomplete_details"], json!({"reason": "max_output_tokens"}));
        assert_eq!(last.data["response"]["output"][0]["status"], "incomplete");

        let mut form = response();
        form.part(0, AnswerPart::Delta(Delta::Thought("h".into())));
        form.part(0, AnswerPart::Delta(Delta::Text("W".into())));
        let failed = form.error(&ApiError::timed_out());
        let response = &failed.data["response"];
        assert_eq!((failed.event, &response["status"]), (Some("response.failed"), &json!("failed")));
        assert_eq!(response["error"]["code"], "timeout");
        assert_eq!(response["output"].as_array().unwrap().len(), 1, "what was complete");
    }

    #[test]
    fn an_answer_is_never_without_an_item() {
        let empty = Done {
            content: String::new(),
            thoughts: String::new(),
            calls: Vec::new(),
            ..done(StopReason::EndOfText)
        };
        let whole = response().whole(vec![empty]);
        assert_eq!(whole["output"][0]["content"][0]["text"], "");
    }
}
