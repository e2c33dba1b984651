//! Answers in Anthropic's form.

use super::error::error_object;
use crate::answer::{AnswerPart, Begun, Done, Form, Frame, Framing, facts};
use crate::error::ApiError;
use crate::response::random_id;
use serde_json::{Value, json};
use terrace_engine::{Delta, StopReason};

/// A message in Anthropic's form.
pub struct Message {
    id: String,
    model: String,
    /// Tokens of the prompt, and of these those that were there already.
    prompt: (usize, usize),
    /// Number of blocks begun.
    blocks: usize,
    /// The block that is open.
    open: Option<Block>,
}

/// A kind of block; calls have the number of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Thoughts,
    Text,
    Call(usize),
}

impl Message {
    pub fn new(model: String) -> Self {
        Self { id: random_id("msg_"), model, prompt: (0, 0), blocks: 0, open: None }
    }

    fn object(&self, content: Value) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": null,
            "stop_sequence": null,
        })
    }

    /// Ends the open block, if it is not this one, and begins it.
    fn begin_block(&mut self, block: Block, content: Value, frames: &mut Vec<Frame>) {
        if self.open == Some(block) {
            return;
        }
        self.end_block(frames);
        self.open = Some(block);
        let data = json!({"type": "content_block_start", "index": self.blocks, "content_block": content});
        frames.push(frame("content_block_start", data));
        self.blocks += 1;
    }

    fn end_block(&mut self, frames: &mut Vec<Frame>) {
        if self.open.take().is_some() {
            let data = json!({"type": "content_block_stop", "index": self.blocks - 1});
            frames.push(frame("content_block_stop", data));
        }
    }

    fn delta(&self, delta: &Value) -> Frame {
        let data = json!({"type": "content_block_delta", "index": self.blocks - 1, "delta": delta});
        frame("content_block_delta", data)
    }
}

const fn frame(event: &'static str, data: Value) -> Frame {
    Frame { event: Some(event), data }
}

impl Form for Message {
    fn whole(&mut self, mut all: Vec<Done>) -> Value {
        let Some(done) = all.pop() else { return Value::Null };
        let mut content = Vec::new();
        if !done.thoughts.is_empty() {
            content.push(json!({"type": "thinking", "thinking": done.thoughts, "signature": ""}));
        }
        if !done.content.is_empty() {
            content.push(json!({"type": "text", "text": done.content}));
        }
        for call in &done.calls {
            let input: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
            content.push(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input}));
        }
        let mut value = self.object(content.into());
        value["stop_reason"] = stop_reason(&done).into();
        value["stop_sequence"] = done.answer.stop_string.clone().into();
        let answer = &done.answer;
        value["usage"] = usage((answer.prompt_tokens, answer.reused), answer.tokens.len());
        value["terrace"] = facts(&done);
        value
    }

    fn begun(&mut self, begun: Begun) {
        self.prompt = (begun.prompt_tokens, begun.reused);
    }

    fn begin(&mut self) -> Vec<Frame> {
        let mut message = self.object(json!([]));
        message["usage"] = usage(self.prompt, 0);
        vec![frame("message_start", json!({"type": "message_start", "message": message}))]
    }

    fn part(&mut self, _: usize, part: AnswerPart) -> Vec<Frame> {
        let mut frames = Vec::new();
        match part {
            AnswerPart::Probs(_) | AnswerPart::Token(_) | AnswerPart::Scored(_) | AnswerPart::Progress(_) => {
            }
            AnswerPart::Delta(Delta::Text(text)) => {
                self.begin_block(Block::Text, json!({"type": "text", "text": ""}), &mut frames);
                frames.push(self.delta(&json!({"type": "text_delta", "text": text})));
            }
            AnswerPart::Delta(Delta::Thought(text)) => {
                let empty = json!({"type": "thinking", "thinking": "", "signature": ""});
                self.begin_block(Block::Thoughts, empty, &mut frames);
                frames.push(self.delta(&json!({"type": "thinking_delta", "thinking": text})));
            }
            AnswerPart::Delta(Delta::Call { index, id, name, arguments }) => {
                let call = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                self.begin_block(Block::Call(index), call, &mut frames);
                if !arguments.is_empty() {
                    frames.push(self.delta(&json!({"type": "input_json_delta", "partial_json": arguments})));
                }
            }
        }
        frames
    }

    fn end(&mut self, _: usize, done: &Done) -> Vec<Frame> {
        let mut frames = Vec::new();
        self.end_block(&mut frames);
        let delta = json!({"stop_reason": stop_reason(done), "stop_sequence": done.answer.stop_string});
        let data = json!({
            "type": "message_delta",
            "delta": delta,
            // Clients add what is told of the prompt here to what was told of it at the beginning.
            "usage": {"output_tokens": done.answer.tokens.len()},
            "terrace": facts(done),
        });
        frames.push(frame("message_delta", data));
        frames.push(frame("message_stop", json!({"type": "message_stop"})));
        frames
    }

    fn error(&self, error: &ApiError) -> Frame {
        frame("error", error_object(error))
    }

    fn framing(&self) -> Framing {
        Framing::Events { done: false }
    }
}

fn usage((prompt, reused): (usize, usize), output: usize) -> Value {
    json!({
        "input_tokens": prompt.saturating_sub(reused),
        "cache_read_input_tokens": reused,
        "cache_creation_input_tokens": 0,
        "output_tokens": output,
    })
}

/// The reason in Anthropic's terms.
const fn stop_reason(done: &Done) -> &'static str {
    match done.answer.stop {
        StopReason::EndOfText | StopReason::StopString if !done.calls.is_empty() => "tool_use",
        StopReason::EndOfText => "end_turn",
        StopReason::StopString => "stop_sequence",
        StopReason::Length | StopReason::Cancelled => "max_tokens",
        StopReason::ContextFull => "model_context_window_exceeded",
    }
}
