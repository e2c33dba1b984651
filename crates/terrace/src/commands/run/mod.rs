//! `terrace run`.

mod chat;
mod chat_line;
mod images;
mod input;
mod kept;

use crate::watch::{Hangups, Watch};
use input::{Input, input};
use std::io::{ErrorKind, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use terrace_cli::args::{PathList, RunArgs};
use terrace_cli::error::CliError;
use terrace_cli::loading;
use terrace_cli::loading::Announce;
use terrace_cli::report::RunReport;
use terrace_cli::report::summary::{self, Summary};
use terrace_cli::term::say;
use terrace_cli::term::{prompt_bar, signals};
use terrace_cli::whole_file;
use terrace_cli::written::LAST_LOGITS;
use terrace_engine::options::{GivenPrompt, GivenWork, ThinkingOptions};
use terrace_engine::{
    Answer, ChatTemplate, Conversation, Engine, EngineError, Images, Limits, Logits, Message, Prompted,
    ReasoningFormat, SavedTrace, Session, Utf8Stream,
};
use terrace_ggml::llama::Sampling;

/// Runs the command: generates text as the options say.
///
/// # Errors
/// The input, the model, the generation or the output fails.
pub fn run(args: &RunArgs, verbose: bool) -> Result<(), CliError> {
    record(args, verbose, None).map(|_| ())
}

/// Like [`run`], and also records the routers' choices in the file `trace`. `None` if nothing was
/// recorded.
///
/// # Errors
/// As [`run`], or the trace cannot be written.
pub fn record(args: &RunArgs, verbose: bool, trace: Option<PathBuf>) -> Result<Option<SavedTrace>, CliError> {
    // Before the load, so that bad input costs no load.
    let input = input(args)?;
    if input == Input::Conversation && args.json {
        return Err(CliError::Usage {
            message: "--json prints one object at the end, which an interactive conversation does not have"
                .into(),
            hint: "give the message with -p TEXT, -f FILE or on stdin".into(),
        });
    }
    if input == Input::Conversation && !args.image.is_empty() {
        return Err(CliError::Usage {
            message: "--image needs a prompt, which an interactive conversation does not have".into(),
            hint: "give the message with -p TEXT, -f FILE or on stdin".into(),
        });
    }
    let (input, images) = match input {
        Input::Text(text) => {
            let (text, images) = images::with_images(&PathList::all(&args.image), text, args.chat)?;
            (Input::Text(text), images)
        }
        conversation @ Input::Conversation => (conversation, Images::default()),
    };
    let sampling = args.sampling.settings()?;
    if !matches!(args.thinking.reasoning_format, ReasoningFormat::Auto | ReasoningFormat::None) {
        tracing::warn!("--reasoning-format has no effect: the text is printed as the model writes it");
    }
    let template = args.template.source()?;
    let timeline = args.timeline.clone().filter(|_| !args.no_timeline);
    if timeline.is_some() && args.testing.stock {
        return Err(CliError::Usage {
            message: "--timeline records Terrace's reads and computing, but --stock runs plain llama.cpp"
                .into(),
            hint: "use only one of the two".into(),
        });
    }
    let announce = Announce::of(verbose, args.json);
    let drafts = args.drafts.options(&args.engine.presets)?;
    let given = given_work(args, &input);
    let hangups = args.watch.then(|| Hangups::handle(false)).transpose()?;
    let mut engine =
        loading::load(args.model.as_deref(), &args.engine, &args.testing, announce, |options| {
            options.chat_template = template;
            options.record.trace = trace;
            options.given = given;
            options.record.timeline = timeline.map(Into::into);
            options.drafts = drafts;
            options.adapters = args.adapters.all(true);
            options.vision = args.vision.clone();
            options.prompt_cache.files = args.prompt_cache.prompt_cache.is_some();
            options.reload.allowed = args.watch;
            options.reload.contexts = args.on_reload;
        })?;
    args.sampling.check(engine.vocabulary())?;
    prompt_bar::show(&mut engine);
    let _watch = hangups.map(|hangups| Watch::start(&mut engine, hangups)).transpose()?;
    let answered = answer(&mut engine, args, (input, &images), &sampling, verbose);
    // A timeline that ends with an error or with Ctrl-C is of interest too.
    let recorded = engine.save_timeline();
    answered?;
    if let Some(budget) = engine.budget_spent().filter(|_| !verbose) {
        say!("{}", summary::budget_line(&budget));
    }
    if let Some(saved) = recorded? {
        say!("{}", summary::timeline(&saved));
    }
    engine.finish_learned()?;
    Ok(engine.save_trace()?)
}

fn answer(
    engine: &mut Engine,
    args: &RunArgs,
    (input, images): (Input, &Images),
    sampling: &Sampling,
    verbose: bool,
) -> Result<(), CliError> {
    let mut sampling = sampling.clone();
    let limits = Limits { tokens: args.n, stop: args.stop.clone() };
    let prompt = match input {
        Input::Text(text) if !args.chat => engine.read_prompt(&text, images, true)?,
        Input::Text(text) => {
            let template = chat_template(engine)?;
            let mut talk = system_message(args);
            talk.push(Message::new("user", text));
            let (text, limited) = written(&template, &talk, &args.thinking, &sampling)?;
            sampling = limited;
            engine.read_prompt(&text, images, !engine.special_tokens().begin(&text))?
        }
        Input::Conversation => {
            let template = chat_template(engine)?;
            if args.prompt_cache.prompt_cache.is_some() {
                tracing::warn!("--prompt-cache has no effect on conversations at the terminal");
            }
            let answers = chat::Answers { limits, sampling, thinking: &args.thinking };
            let ended = chat::converse(engine, &template, system_message(args), &answers);
            if verbose {
                say!("{}", Summary::of(engine, None));
            }
            return ended;
        }
    };
    let mut out = Output::new(!args.json);
    let mut session = engine.session();
    let kept = args.prompt_cache.prompt_cache.as_deref();
    let all = measured(prompt.tokens.clone(), args);
    let (before, tokens) = all.split_at(all.len().min(args.depth as usize));
    if !before.is_empty() {
        signals::busy(|| engine.read_ahead(&mut session, before))?;
    }
    let reused = kept.map_or(Ok(0), |file| kept::recall(engine, &mut session, tokens, file))?;
    let mut generation = match images.is_empty() {
        true => generate(engine, &mut session, &tokens[reused..], limits, &sampling, &mut out)?,
        false => generate_seeing(engine, &mut session, &prompt, limits, &sampling, &mut out)?,
    };
    (generation.prompt_tokens, generation.reused) = (tokens.len(), reused);
    if let Some(file) = kept.filter(|_| !args.prompt_cache.prompt_cache_ro) {
        kept::keep(engine, &session, file)?;
    }
    if verbose {
        say!("{}", Summary::of(engine, Some(&generation)));
    }
    if args.json {
        let preset = args.engine.presets.from_preset.clone();
        let report = RunReport { preset, ..RunReport::new(engine, &generation) };
        let text = serde_json::to_string(&report).expect("a report is plain data");
        out.write(&format!("{text}\n"));
        out.failed()?;
    }
    if let Some(path) = &args.save_last_logits {
        save_last_logits(engine, &all, path)?;
    }
    Ok(())
}

/// What is known of the run's work. A chat template adds some tokens to it.
fn given_work(args: &RunArgs, input: &Input) -> GivenWork {
    let prompt = match (args.prompt_tokens, input) {
        (Some(tokens), _) => Some(GivenPrompt::Tokens(tokens)),
        (None, Input::Text(text)) => Some(GivenPrompt::Text(text.clone())),
        (None, Input::Conversation) => None,
    };
    // Of a conversation, nothing says how many messages it will have.
    let output = args.n.filter(|_| prompt.is_some()).and_then(|n| u32::try_from(n).ok());
    GivenWork { prompt, output }
}

/// The tokens of a prompt that has a stated length: what comes before it and itself, repeated from the prompt's.
fn measured(tokens: Vec<i32>, args: &RunArgs) -> Vec<i32> {
    let length = args.prompt_tokens.map_or(tokens.len(), |tokens| tokens as usize) + args.depth as usize;
    if length == tokens.len() { tokens } else { tokens.into_iter().cycle().take(length).collect() }
}

/// Evaluates the prompt once more, and writes the logits of its last token.
///
/// # Errors
/// The engine fails, or the file cannot be written.
fn save_last_logits(engine: &mut Engine, prompt: &[i32], path: &Path) -> Result<(), CliError> {
    let mut last: Vec<u8> = Vec::new();
    signals::busy(|| {
        Logits::new(engine).of_text(prompt, prompt.len().saturating_sub(1), &mut |rows| {
            last = rows.rows.iter().flat_map(|logit| logit.to_le_bytes()).collect();
            Ok::<(), EngineError>(())
        })
    })?;
    whole_file::write_bytes(path, &LAST_LOGITS, &last)
}

/// The model's own chat template.
///
/// # Errors
/// The model has no template, or its template does not parse.
fn chat_template(engine: &Engine) -> Result<ChatTemplate, CliError> {
    let Some(source) = engine.chat_template() else {
        return Err(CliError::Usage {
            message: "the model has no chat template".into(),
            hint: "run without --chat to complete plain text".into(),
        });
    };
    let special = engine.special_tokens();
    Ok(ChatTemplate::parse(&source, special.bos.as_deref(), special.eos.as_deref())?)
}

fn system_message(args: &RunArgs) -> Vec<Message> {
    args.system.iter().map(|text| Message::new("system", text)).collect()
}

/// Writes a conversation with a template. Returns the text, and the sampling of its answer.
///
/// # Errors
/// The template refuses the conversation.
pub fn written(
    template: &ChatTemplate,
    talk: &[Message],
    thinking: &ThinkingOptions,
    sampling: &Sampling,
) -> Result<(String, Sampling), CliError> {
    let mut conversation = Conversation::of(talk);
    thinking.complete(&mut conversation, None, None);
    let written = template.apply(&conversation)?;
    let mut sampling = sampling.clone();
    if let (Some(mut thoughts), Some(budget)) = (written.thoughts, thinking.budget()) {
        thinking.limit(&mut thoughts, Some(budget));
        sampling.thoughts = Some(thoughts);
    }
    Ok((written.prompt, sampling))
}

/// Tokenises a rendered conversation.
///
/// # Errors
/// The tokenizer fails.
pub fn chat_tokens(engine: &Engine, text: &str) -> Result<Vec<i32>, CliError> {
    Ok(engine.tokenize_prompt(text, !engine.special_tokens().begin(text))?)
}

/// Generates after a session and `prompt`, and writes the text to `out` as it comes.
///
/// # Errors
/// The engine or stdout fails.
pub fn generate(
    engine: &mut Engine,
    session: &mut Session,
    prompt: &[i32],
    limits: Limits,
    sampling: &Sampling,
    out: &mut Output,
) -> Result<Answer, CliError> {
    streamed(out, |sink| engine.generate(session, prompt, limits, sampling, sink))
}

/// As [`generate`], of a prompt with images.
fn generate_seeing(
    engine: &mut Engine,
    session: &mut Session,
    prompt: &Prompted,
    limits: Limits,
    sampling: &Sampling,
    out: &mut Output,
) -> Result<Answer, CliError> {
    streamed(out, |sink| engine.generate_seeing(session, prompt, limits, sampling, sink))
}

/// Writes what `generate` hands to its sink.
fn streamed(
    out: &mut Output,
    generate: impl FnOnce(&mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> Result<Answer, EngineError>,
) -> Result<Answer, CliError> {
    let mut text = Utf8Stream::default();
    let result = signals::busy(|| {
        generate(&mut |bytes| {
            if out.streams {
                out.write(&text.push(bytes));
            }
            if out.error.is_some() || signals::interrupted() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
    });
    if out.streams {
        out.write(&text.finish());
        // For a prompt that was refused, nothing is printed.
        if result.is_ok() || out.written {
            out.write("\n");
        }
    }
    out.failed()?;
    Ok(result?)
}

/// Stdout, with the first error of a write, which the generating loop cannot return.
pub struct Output {
    /// True if text is printed as it is generated.
    streams: bool,
    /// True if anything was printed.
    written: bool,
    error: Option<std::io::Error>,
}

impl Output {
    /// The output of a run that streams its text, or of one that prints only a report.
    pub const fn new(streams: bool) -> Self {
        Self { streams, written: false, error: None }
    }

    fn write(&mut self, text: &str) {
        if self.error.is_none() && !text.is_empty() {
            self.written = true;
            let mut stdout = std::io::stdout().lock();
            self.error = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).err();
        }
    }

    /// Returns the error, if there was one. A reader that closes the pipe (`| head`) is no error.
    fn failed(&mut self) -> Result<(), CliError> {
        match self.error.take() {
            Some(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(CliError::Io { what: "stdout".into(), source: error })
            }
            _ => Ok(()),
        }
    }
}
