//! Answers in OpenAI's form.

use super::aligned::Aligned;
use super::probs::{self, Offsets};
use crate::answer::{
    AnswerPart, Begun, Call, Done, Form, Frame, Framing, facts, progress, progress_timings, timings,
};
use crate::app::unix_seconds;
use crate::response::random_id;
use serde_json::{Value, json};
use terrace_engine::{Delta, StopReason};

/// Which of the two endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Chat,
    Text,
}

/// Parts of a response besides the text.
#[derive(Clone, Debug, Default)]
pub struct ResponseExtras {
    /// Numbers of tokens, at a stream's end.
    pub usage: bool,
    /// The numbers so far with each piece of a stream, as vLLM has them.
    pub running_usage: bool,
    /// Progress of the prompts, in streams.
    pub progress: bool,
    /// The prompt as the template wrote it, with what answers were before they were read. `None`: not.
    pub verbose: Option<String>,
}

/// Answers in OpenAI's form.
pub struct Completion {
    kind: Kind,
    id: String,
    created: u64,
    model: String,
    told: ResponseExtras,
    /// Texts that answers begin with; none for answers without a number here, and where the prompt's
    /// tokens are told with their probabilities, which hold its text.
    echo: Vec<String>,
    /// Number of answers to each prompt.
    per_prompt: usize,
    /// Probabilities whose text comes next, and the offsets of tokens, by answer.
    probs: Vec<(Option<Value>, Offsets)>,
    /// Tokens of conversations whose text is still to come, by answer.
    aligned: Vec<Aligned>,
    usage: Usage,
    /// Tokens of the prompt and of the answers so far, if they are told with each piece.
    so_far: (usize, usize),
    /// The times of the first answer that ended.
    timings: Value,
}

/// Numbers of tokens of all answers so far.
#[derive(Clone, Copy, Default)]
struct Usage {
    prompt: usize,
    completion: usize,
    cached: usize,
    thoughts: usize,
}

impl Completion {
    pub fn new(
        kind: Kind,
        model: String,
        told: ResponseExtras,
        echo: Vec<String>,
        per_prompt: usize,
    ) -> Self {
        let id = random_id(match kind {
            Kind::Chat => "chatcmpl-",
            Kind::Text => "cmpl-",
        });
        let (created, usage) = (unix_seconds(), Usage::default());
        let (probs, aligned, timings) = (Vec::new(), Vec::new(), Value::Null);
        Self {
            kind,
            id,
            created,
            model,
            told,
            echo,
            per_prompt,
            probs,
            aligned,
            usage,
            so_far: (0, 0),
            timings,
        }
    }

    fn object(&self, of_stream: bool, choices: Value) -> Value {
        let object = match (self.kind, of_stream) {
            (Kind::Chat, false) => "chat.completion",
            (Kind::Chat, true) => "chat.completion.chunk",
            (Kind::Text, _) => "text_completion",
        };
        let mut value = json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": concat!("terrace-", env!("CARGO_PKG_VERSION")),
            "choices": choices,
        });
        // If usage is requested, all chunks except the last have a null `usage`.
        if of_stream && self.told.running_usage {
            let (prompt, completion) = self.so_far;
            value["usage"] = json!({
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": prompt + completion,
            });
        } else if of_stream && self.told.usage {
            value["usage"] = Value::Null;
        }
        value
    }

    fn chunk(&self, number: usize, delta: Value, finish: Option<&str>) -> Value {
        let mut choice = json!({"index": number, "logprobs": null, "finish_reason": finish});
        match self.kind {
            Kind::Chat => choice["delta"] = delta,
            Kind::Text => choice["text"] = delta["content"].as_str().unwrap_or_default().into(),
        }
        self.object(true, json!([choice]))
    }

    /// The place for an answer's probabilities.
    fn probs_of(&mut self, number: usize) -> &mut (Option<Value>, Offsets) {
        if self.probs.len() <= number {
            self.probs.resize_with(number + 1, Default::default);
        }
        &mut self.probs[number]
    }

    fn aligned_of(&mut self, number: usize) -> &mut Aligned {
        if self.aligned.len() <= number {
            self.aligned.resize_with(number + 1, Aligned::default);
        }
        &mut self.aligned[number]
    }

    fn choice(&mut self, number: usize, done: &Done) -> Value {
        let answer = &done.answer;
        let mut choice = json!({"index": number, "logprobs": null, "finish_reason": finish_reason(done)});
        match self.kind {
            Kind::Chat => {
                let mut message = json!({"role": "assistant", "content": done.content});
                if !done.thoughts.is_empty() {
                    message["reasoning_content"] = done.thoughts.as_str().into();
                }
                if !done.calls.is_empty() {
                    message["tool_calls"] = done.calls.iter().map(call).collect();
                    if done.content.is_empty() {
                        message["content"] = Value::Null;
                    }
                }
                choice["message"] = message;
                if !answer.probs.is_empty() {
                    let mut aligned = Aligned::default();
                    aligned.push(answer.probs.clone());
                    aligned.thought(&done.thoughts);
                    choice["logprobs"] = probs::of_chat(&aligned.content(&done.content));
                }
            }
            Kind::Text => {
                let scored = done.scored.as_ref().map(|scored| (scored, scored.bytes()));
                let before = match &scored {
                    Some((_, bytes)) => String::from_utf8_lossy(bytes),
                    None => self.echo.get(number).map_or("", String::as_str).into(),
                };
                choice["text"] = format!("{before}{}", done.content).into();
                let mut offsets = Offsets::after(&before);
                let own = (!answer.probs.is_empty()).then(|| probs::of_text(&answer.probs, &mut offsets));
                let lists = scored.map(|(scored, _)| probs::of_prompt(scored));
                choice["logprobs"] = match (lists, own) {
                    (Some(before), Some(own)) => probs::joined(before, own),
                    (lists, own) => lists.or(own).unwrap_or_default(),
                };
            }
        }
        choice
    }

    /// Adds details for debugging, under llama-server's names.
    fn add_verbose(&self, to: &mut Value, number: usize, done: &Done) {
        let Some(prompt) = &self.told.verbose else { return };
        let answer = &done.answer;
        to["__verbose"] = json!({
            "index": number,
            "prompt": prompt,
            "content": String::from_utf8_lossy(&answer.text),
            "tokens": answer.tokens,
            "tokens_predicted": answer.tokens.len(),
            "tokens_evaluated": answer.prompt_tokens,
            "tokens_cached": answer.reused,
            "stopping_word": answer.stop_string.as_deref().unwrap_or_default(),
            "timings": timings(answer),
        });
    }

    /// Counts an answer, and its prompt with the first of its answers.
    fn count(&mut self, number: usize, done: &Done) {
        let answer = &done.answer;
        self.usage.completion += answer.tokens.len();
        self.usage.thoughts += done.thought_tokens;
        if number.is_multiple_of(self.per_prompt.max(1)) {
            self.usage.prompt += answer.prompt_tokens;
            self.usage.cached += answer.reused;
        }
    }

    fn usage(&self) -> Value {
        let Usage { prompt, completion, cached, thoughts } = self.usage;
        json!({
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": thoughts},
        })
    }
}

impl Form for Completion {
    fn whole(&mut self, all: Vec<Done>) -> Value {
        let choices = all.iter().enumerate().map(|(number, done)| self.choice(number, done)).collect();
        all.iter().enumerate().for_each(|(number, done)| self.count(number, done));
        let mut value = self.object(false, choices);
        value["usage"] = self.usage();
        if let Some(first) = all.first() {
            value["timings"] = timings(&first.answer);
            value["terrace"] = facts(first);
            self.add_verbose(&mut value, 0, first);
        }
        value
    }

    fn begun(&mut self, begun: Begun) {
        self.so_far.0 = begun.prompt_tokens;
    }

    fn begin(&mut self) -> Vec<Frame> {
        match self.kind {
            // One is enough: the others begin with their first part.
            Kind::Chat => vec![self.chunk(0, json!({"role": "assistant", "content": null}), None).into()],
            Kind::Text => {
                let echo = std::mem::take(&mut self.echo);
                let chunk = |(number, text)| self.chunk(number, json!({"content": text}), None).into();
                echo.into_iter().enumerate().map(chunk).collect()
            }
        }
    }

    fn part(&mut self, number: usize, part: AnswerPart) -> Vec<Frame> {
        let delta = match part {
            AnswerPart::Probs(all) => {
                if self.kind == Kind::Chat {
                    self.aligned_of(number).push(all);
                    return Vec::new();
                }
                let (waiting, offsets) = self.probs_of(number);
                let value = probs::of_text(&all, offsets);
                *waiting = Some(match waiting.take() {
                    Some(before) => probs::joined(before, value),
                    None => value,
                });
                return Vec::new();
            }
            AnswerPart::Scored(prompt) => {
                let bytes = prompt.bytes();
                let text = String::from_utf8_lossy(&bytes);
                self.probs_of(number).1 = Offsets::after(&text);
                let mut chunk = self.chunk(number, json!({"content": text}), None);
                chunk["choices"][0]["logprobs"] = probs::of_prompt(&prompt);
                return vec![chunk.into()];
            }
            AnswerPart::Token(_) => {
                self.so_far.1 += 1;
                return Vec::new();
            }
            AnswerPart::Progress(_) if !self.told.progress => return Vec::new(),
            AnswerPart::Progress(done) => {
                let mut chunk = self.chunk(number, json!({}), None);
                chunk["prompt_progress"] = progress(&done);
                chunk["timings"] = progress_timings(&done);
                return vec![chunk.into()];
            }
            AnswerPart::Delta(Delta::Text(text)) => {
                if self.kind == Kind::Chat {
                    let tokens = self.aligned_of(number).content(&text);
                    self.probs_of(number).0 = (!tokens.is_empty()).then(|| probs::of_chat(&tokens));
                }
                json!({"content": text})
            }
            AnswerPart::Delta(Delta::Thought(text)) => {
                self.aligned_of(number).thought(&text);
                json!({"reasoning_content": text})
            }
            AnswerPart::Delta(Delta::Call { index, id, name, arguments }) => {
                let mut call = json!({"index": index, "function": {"arguments": arguments}});
                if let Some(name) = name {
                    call["id"] = id.into();
                    call["type"] = "function".into();
                    call["function"]["name"] = name.into();
                }
                json!({"tool_calls": [call]})
            }
        };
        let mut chunk = self.chunk(number, delta, None);
        if let Some(probs) = self.probs_of(number).0.take() {
            chunk["choices"][0]["logprobs"] = probs;
        }
        vec![chunk.into()]
    }

    fn end(&mut self, number: usize, done: &Done) -> Vec<Frame> {
        self.count(number, done);
        let mut last = self.chunk(number, json!({}), Some(finish_reason(done)));
        if let Some(probs) = self.probs_of(number).0.take() {
            last["choices"][0]["logprobs"] = probs;
        }
        last["timings"] = timings(&done.answer);
        if self.timings.is_null() {
            self.timings = last["timings"].clone();
        }
        last["terrace"] = facts(done);
        self.add_verbose(&mut last, number, done);
        vec![last.into()]
    }

    fn finish(&mut self) -> Vec<Frame> {
        if !self.told.usage {
            return Vec::new();
        }
        let mut counted = self.object(true, json!([]));
        counted["usage"] = self.usage();
        counted["timings"] = std::mem::take(&mut self.timings);
        vec![counted.into()]
    }

    fn framing(&self) -> Framing {
        Framing::Events { done: true }
    }
}

/// A call of a tool in OpenAI's form.
pub fn call(call: &Call) -> Value {
    json!({
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    })
}

/// The reason in OpenAI's terms: "length" for every answer that was cut off, for whatever reason.
const fn finish_reason(done: &Done) -> &'static str {
    match done.answer.stop {
        StopReason::EndOfText | StopReason::StopString if !done.calls.is_empty() => "tool_calls",
        StopReason::EndOfText | StopReason::StopString => "stop",
        StopReason::Length | StopReason::ContextFull | StopReason::Cancelled => "length",
    }
}
