//! llama-server's own endpoints: completions, also of gaps, and templates.

use super::settings::settings;
use crate::answer::{
    AnswerPart, Done, Form, Frame, Framing, facts, progress, progress_timings, respond, timings,
};
use crate::app::{App, LoadedModel, Ready};
use crate::error::ApiError;
use crate::request::answer_settings::AnswerSettings;
use crate::request::body::{Body, Fields, wrong};
use crate::request::chat::Chat;
use crate::request::constraint::Constraint;
use crate::request::question::Question;
use crate::request::{infill, off_thread, prompt, sampling, slot};
use crate::response::json;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json as object};
use std::sync::Arc;
use terrace_engine::{Delta, StopReason, TokenProb, TokenProbs};
use terrace_serving::Prompt;

/// `POST /completion`.
///
/// # Errors
/// The request cannot be answered.
pub async fn completion(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
    body: Body,
) -> Result<Response, ApiError> {
    answer(&app, &ready, body, |fields, _, ready| prompt::prompts(fields, ready)).await
}

/// `POST /infill`: what belongs between `input_prefix` and `input_suffix`.
///
/// # Errors
/// The model has no tokens for gaps, or the request cannot be answered.
pub async fn infill(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
    body: Body,
) -> Result<Response, ApiError> {
    answer(&app, &ready, body, |fields, wanted, ready| Ok(vec![infill::infill(fields, wanted.n_max, ready)?]))
        .await
}

/// Reads the prompts of a request.
type Prompts = fn(&mut Fields, &AnswerSettings, &Ready) -> Result<Vec<Prompt>, ApiError>;

async fn answer(
    app: &Arc<App>,
    ready: &Arc<Ready>,
    body: Body,
    prompts: Prompts,
) -> Result<Response, ApiError> {
    let request = {
        let (app, ready) = (Arc::clone(app), Arc::clone(ready));
        off_thread(move || Request::parse(&body, &app, &ready, prompts)).await?
    };
    respond(app, ready, request.questions, request.stream, request.form).await
}

struct Request {
    questions: Vec<Question>,
    stream: bool,
    form: Native,
}

impl Request {
    fn parse(body: &Body, app: &App, ready: &Ready, prompts: Prompts) -> Result<Self, ApiError> {
        let mut fields = body.fields()?;
        let limits = ["n_predict", "max_tokens", "max_new_tokens"];
        let mut wanted = AnswerSettings::read(&mut fields, app, ready, &limits)?;
        wanted.probs = sampling::probs(&mut fields, None, "n_probs")?;
        wanted.after_samplers = fields.flag("post_sampling_probs")?.unwrap_or(false);
        wanted.read_answers(&mut fields, &["n", "n_cmpl"])?;
        wanted.lines = sampling::lines(&mut fields)?;
        let stream = fields.flag("stream")?.unwrap_or(false);
        wanted.reuse = fields.flag("cache_prompt")?.unwrap_or(true);
        wanted.slot = slot::slot(&mut fields, ready)?;
        let return_tokens = fields.flag("return_tokens")?.unwrap_or(false);
        wanted.tokens = stream;
        let return_progress = fields.flag("return_progress")?.unwrap_or(false);
        let shown = shown(&mut fields)?;
        let constraint = Constraint::read(&mut fields)?;
        let prompts = prompts(&mut fields, &wanted, ready)?;
        fields.finish()?;
        wanted.sampling.keep_within(constraint.grammar(ready)?);
        let settings = settings(&wanted, stream, ready);
        let questions = wanted.questions(&prompts, ready)?;
        let (mut texts, mut growing) = (Vec::new(), Vec::new());
        for prompt in &prompts {
            let begun = Growing { prompt: prompt.len(), ..Growing::default() };
            growing.extend(std::iter::repeat_n(begun, wanted.answers));
            if shown.iter().any(|path| path == "prompt") {
                let text = ready.ask(|serving| serving.detokenize(prompt))??;
                let text = String::from_utf8_lossy(&text).into_owned();
                texts.extend(std::iter::repeat_n(text, wanted.answers));
            }
        }
        let model = ready.name.clone();
        let after_samplers = wanted.after_samplers;
        let form =
            Native { model, return_tokens, return_progress, after_samplers, settings, shown, texts, growing };
        Ok(Self { questions, stream, form })
    }
}

/// The paths in an answer that the client wants to see, as `timings/prompt_n`.
fn shown(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    let Some(value) = fields.take("response_fields") else { return Ok(Vec::new()) };
    let place = fields.place("response_fields");
    let Value::Array(paths) = value else { return Err(wrong(&place, &value, "an array of strings")) };
    let path = |path| match path {
        Value::String(path) => Ok(path),
        other => Err(wrong(&place, &other, "an array of strings")),
    };
    paths.into_iter().map(path).collect()
}

/// Of an answer, the values at these paths, under the paths as names.
fn select(answer: &Value, paths: &[String]) -> Value {
    let at = |path: &String| path.split('/').try_fold(answer, |value, key| value.get(key)).cloned();
    paths.iter().filter_map(|path| Some((path.clone(), at(path)?))).collect()
}

/// Answers in llama-server's form.
struct Native {
    model: String,
    return_tokens: bool,
    return_progress: bool,
    /// True if probabilities are those after the samplers.
    after_samplers: bool,
    settings: Value,
    /// Paths of what an answer shows; empty: all but the prompt.
    shown: Vec<String>,
    /// The prompts by answer, if they are shown.
    texts: Vec<String>,
    /// By answer, where they stream.
    growing: Vec<Growing>,
}

/// State of a growing response.
#[derive(Clone, Default)]
struct Growing {
    /// Tokens of its prompt.
    prompt: usize,
    /// Tokens that were generated.
    predicted: usize,
    /// Tokens whose text comes next.
    tokens: Vec<i32>,
    /// Probabilities whose text comes next.
    probs: Vec<TokenProbs>,
}

impl Growing {
    /// The next piece of the answer.
    fn piece(&mut self, number: usize, text: &str, after_samplers: bool) -> Value {
        let mut value = object!({
            "index": number,
            "content": text,
            "tokens": std::mem::take(&mut self.tokens),
            "stop": false,
            "id_slot": -1,
            "tokens_predicted": self.predicted,
            "tokens_evaluated": self.prompt,
        });
        self.tell_probs(&mut value, after_samplers);
        value
    }

    /// Adds the probabilities that wait, if there are any.
    fn tell_probs(&mut self, value: &mut Value, after_samplers: bool) {
        let probs = std::mem::take(&mut self.probs);
        if !probs.is_empty() {
            value["completion_probabilities"] = probabilities(&probs, after_samplers);
        }
    }
}

impl Native {
    fn last(&self, number: usize, content: &str, done: &Done) -> Value {
        let answer = &done.answer;
        let mut value = object!({
            "index": number,
            "content": content,
            "tokens": if self.return_tokens { &answer.tokens[..] } else { &[] },
            "id_slot": -1,
            "stop": true,
            "stop_type": stop_type(answer.stop),
            "stopping_word": answer.stop_string.as_deref().unwrap_or_default(),
            "model": self.model,
            "tokens_predicted": answer.tokens.len(),
            "tokens_evaluated": answer.prompt_tokens,
            "tokens_cached": answer.reused,
            "truncated": answer.stop == StopReason::ContextFull,
            "has_new_line": done.content.contains('\n'),
            "generation_settings": self.settings,
            "timings": timings(answer),
            "terrace": facts(done),
        });
        if let Some(text) = self.texts.get(number) {
            value["prompt"] = text.as_str().into();
        }
        value
    }
}

impl Form for Native {
    fn whole(&mut self, all: Vec<Done>) -> Value {
        let value = |(number, done): (usize, &Done)| {
            let mut value = self.last(number, &done.content, done);
            if !done.answer.probs.is_empty() {
                value["completion_probabilities"] = probabilities(&done.answer.probs, self.after_samplers);
            }
            if self.shown.is_empty() { value } else { select(&value, &self.shown) }
        };
        let mut values: Vec<Value> = all.iter().enumerate().map(value).collect();
        if values.len() == 1 { values.remove(0) } else { values.into() }
    }

    fn part(&mut self, number: usize, part: AnswerPart) -> Vec<Frame> {
        let growing = &mut self.growing[number];
        match part {
            AnswerPart::Probs(probs) => {
                growing.probs.extend(probs);
                Vec::new()
            }
            AnswerPart::Token(token) => {
                growing.tokens.push(token);
                growing.predicted += 1;
                Vec::new()
            }
            AnswerPart::Delta(Delta::Text(text)) => {
                vec![growing.piece(number, &text, self.after_samplers).into()]
            }
            AnswerPart::Progress(done) if self.return_progress => {
                let mut value = growing.piece(number, "", self.after_samplers);
                value["prompt_progress"] = progress(&done);
                value["timings"] = progress_timings(&done);
                vec![value.into()]
            }
            // Plain text has neither thoughts nor calls.
            AnswerPart::Progress(_)
            | AnswerPart::Scored(_)
            | AnswerPart::Delta(Delta::Thought(_) | Delta::Call { .. }) => Vec::new(),
        }
    }

    fn end(&mut self, number: usize, done: &Done) -> Vec<Frame> {
        let mut value = self.last(number, "", done);
        let growing = &mut self.growing[number];
        // The others came with their text.
        value["tokens"] = std::mem::take(&mut growing.tokens).into();
        growing.tell_probs(&mut value, self.after_samplers);
        let value = if self.shown.is_empty() { value } else { select(&value, &self.shown) };
        vec![value.into()]
    }

    fn framing(&self) -> Framing {
        Framing::Events { done: false }
    }
}

/// Probabilities in llama-server's form: logarithms, unless they are those after the samplers.
fn probabilities(all: &[TokenProbs], after_samplers: bool) -> Value {
    let one = |prob: &TokenProb| {
        let token = String::from_utf8_lossy(&prob.bytes);
        let mut value = object!({"id": prob.token, "token": token, "bytes": prob.bytes});
        match after_samplers {
            true => value["prob"] = prob.log.exp().into(),
            false => value["logprob"] = prob.log.max(-9999.0).into(),
        }
        value
    };
    let all = all.iter().map(|TokenProbs { token, top }| {
        let mut value = one(token);
        value[if after_samplers { "top_probs" } else { "top_logprobs" }] = top.iter().map(one).collect();
        value
    });
    all.collect()
}

const fn stop_type(stop: StopReason) -> &'static str {
    match stop {
        StopReason::EndOfText => "eos",
        StopReason::StopString => "word",
        StopReason::Length | StopReason::ContextFull => "limit",
        StopReason::Cancelled => "none",
    }
}

/// `POST /apply-template`: turns `{"messages": [...]}` into `{"prompt": TEXT}`.
///
/// # Errors
/// There is no conversation, or the template refuses it.
pub async fn apply_template(LoadedModel(ready): LoadedModel, body: Body) -> Result<Response, ApiError> {
    off_thread(move || {
        let mut fields = body.fields()?;
        let chat = Chat::read(&mut fields)?;
        fields.finish()?;
        Ok(json(&object!({"prompt": chat.write(&ready)?.written.prompt})))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_show_what_is_wanted() {
        let answer = object!({"content": "a", "timings": {"prompt_n": 3, "prompt_ms": 1.5}});
        let paths = ["timings/prompt_n", "content", "nothing", "content/more"].map(String::from);
        assert_eq!(select(&answer, &paths), object!({"timings/prompt_n": 3, "content": "a"}));
    }
}
