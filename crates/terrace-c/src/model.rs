//! A loaded model, for callers on any thread.

use crate::answer;
use crate::failure::Failure;
use crate::options::LoadArgs;
use crate::program;
use crate::status::Status;
use serde_json::Value;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use terrace_engine::options::ThinkingOptions;
use terrace_engine::{
    ChatTemplate, Conversation, Engine, PlannedMachine, SpecialTokens, Take, Written, normalize, plan_run,
};
use terrace_ggml::llama::{Model, Token};

/// A loaded model.
pub struct ModelHandle {
    /// Poisoned by a panic, after which nothing is computed any more.
    engine: Mutex<Engine>,
    /// The thread that computes with the engine.
    caller: Mutex<Option<ThreadId>>,
    interrupt: Arc<AtomicBool>,
    /// Weights and vocabulary, which need no lock.
    model: Arc<Model>,
    thinking: ThinkingOptions,
    template: Option<String>,
    special: SpecialTokens,
    /// The template, once something was written with it.
    parsed: Mutex<Option<Arc<ChatTemplate>>>,
}

/// Notes which thread computes, for as long as it does.
struct Caller<'a>(&'a Mutex<Option<ThreadId>>);

impl<'a> Caller<'a> {
    fn enter(place: &'a Mutex<Option<ThreadId>>) -> Self {
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current().id());
        Self(place)
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// The plan of a load with these options, as `terrace plan --json` prints it. Nothing is loaded.
///
/// # Errors
/// As of a load, up to its plan.
pub fn plan(path: &Path, options: Option<&str>) -> Result<String, Failure> {
    let options = LoadArgs::read(options)?.options(path)?;
    let machine = PlannedMachine { described: None, changes: None, probed: true };
    answer::text(&plan_run(&options, machine)?.plan)
}

impl ModelHandle {
    /// Loads a model.
    ///
    /// # Errors
    /// The options mean nothing, or the model cannot be loaded with them.
    pub fn load(path: &Path, options: Option<&str>) -> Result<Self, Failure> {
        let args = LoadArgs::read(options)?;
        let options = args.options(path)?;
        let engine = Engine::load(options, &mut |_| ControlFlow::Continue(()))?;
        Ok(Self {
            caller: Mutex::new(None),
            interrupt: engine.interrupt_flag(),
            model: Arc::clone(engine.model()),
            thinking: args.thinking(),
            template: engine.chat_template(),
            special: engine.special_tokens(),
            parsed: Mutex::new(None),
            engine: Mutex::new(engine),
        })
    }

    /// Lets this thread compute.
    ///
    /// # Errors
    /// Those of `call`; it already computes, and this is its callback; or an earlier call has panicked.
    pub fn with<R>(&self, call: impl FnOnce(&mut Engine) -> Result<R, Failure>) -> Result<R, Failure> {
        let computing = *self.caller.lock().unwrap_or_else(PoisonError::into_inner);
        if computing == Some(thread::current().id()) {
            return Err(Failure::new(Status::TerraceBusy, "a callback cannot use its own model"));
        }
        let mut engine = self.engine.lock().map_err(|_| {
            Failure::new(Status::TerracePanic, "an earlier call on this model failed: it can only be freed")
        })?;
        // What came before this call was meant for an earlier one.
        self.interrupt.store(false, Ordering::Relaxed);
        let _caller = Caller::enter(&self.caller);
        call(&mut engine)
    }

    /// Ends the computation that runs, if one does.
    pub fn interrupt(&self) {
        self.interrupt.store(true, Ordering::Relaxed);
    }

    /// The tokens of a text. `special` adds those around a document, and recognises control tokens in it.
    ///
    /// # Errors
    /// The tokenizer refuses the text.
    pub fn tokenize(&self, text: &str, special: bool) -> Result<Vec<i32>, Failure> {
        Ok(terrace_engine::steps::tokenize(&self.model, text, special, special, &|| true)?)
    }

    /// The bytes of tokens.
    ///
    /// # Errors
    /// There is no such token.
    pub fn detokenize(&self, tokens: &[i32]) -> Result<Vec<u8>, Failure> {
        let vocab = self.model.vocab();
        let mut bytes = Vec::new();
        for &token in tokens {
            if usize::try_from(token).map_or(true, |token| token >= vocab.len()) {
                return Err(Failure::argument(format!("there is no token {token}, only {}", vocab.len())));
            }
            vocab.piece(Token(token), true, &mut bytes).map_err(terrace_engine::EngineError::from)?;
        }
        Ok(bytes)
    }

    /// Returns true if a text already begins as a document.
    pub fn begins(&self, text: &str) -> bool {
        self.special.begin(text)
    }

    /// Reasoning of the model.
    pub const fn thinking(&self) -> &ThinkingOptions {
        &self.thinking
    }

    /// Writes a conversation as the model's template has it.
    ///
    /// # Errors
    /// It is not a JSON array of messages; there is no template, or it refuses the conversation.
    pub fn written(&self, messages: &str) -> Result<Written, Failure> {
        let messages: Vec<Value> = match serde_json::from_str(messages) {
            Ok(Value::Array(messages)) => messages,
            Ok(_) => return Err(Failure::argument("messages: not a JSON array")),
            Err(error) => return Err(Failure::argument(format!("messages: {error}"))),
        };
        let mut conversation = Conversation { messages, ..Conversation::default() };
        self.thinking.complete(&mut conversation, None, None);
        Ok(self.template()?.apply(&conversation)?)
    }

    fn template(&self) -> Result<Arc<ChatTemplate>, Failure> {
        let mut parsed = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(template) = &*parsed {
            return Ok(Arc::clone(template));
        }
        let none = || Failure::new(Status::TerraceTemplate, "the model has no chat template");
        let source = self.template.as_ref().ok_or_else(none)?;
        program::find();
        let SpecialTokens { bos, eos } = &self.special;
        let template = Arc::new(ChatTemplate::parse(source, bos.as_deref(), eos.as_deref())?);
        *parsed = Some(Arc::clone(&template));
        Ok(template)
    }

    /// The embedding of a text, of length 1; without pooling, those of its tokens, one after another.
    ///
    /// # Errors
    /// The text is empty or too long, or memory holds no context for embeddings.
    pub fn embed(&self, text: &str) -> Result<Vec<f32>, Failure> {
        let tokens = self.tokenize(text, true)?;
        self.with(|engine| {
            let width = engine.embedding_facts().map_or(1, |facts| facts.width.max(1));
            let mut values = engine.embed(&tokens)?;
            // Scores (pooling `rank`) are one value, or a few, and stay as they are.
            if values.len() >= width {
                values.chunks_exact_mut(width).for_each(|row| normalize(row, 2));
            }
            Ok(values)
        })
    }

    /// Replaces the tensors that have changed in the model's files, as `Engine::reload_taking`; says which.
    ///
    /// # Errors
    /// The model is unchanged.
    pub fn reload_changed(&self) -> Result<String, Failure> {
        self.with(|engine| answer::text(&engine.reload_taking(Take::All)?))
    }

    /// Facts about the model, and what it has read so far.
    ///
    /// # Errors
    /// As of [`ModelHandle::with`].
    pub fn statistics(&self) -> Result<String, Failure> {
        self.with(|engine| answer::text(&answer::statistics(engine)))
    }
}
