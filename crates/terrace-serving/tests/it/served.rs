//! A worker with the bundled or another model, and callers that wait for its answers.

pub use crate::bundled::{models, options, text};
pub use crate::reloading::load;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, channel};
use terrace_engine::options::ContextOptions;
use terrace_engine::{Answer, Engine, EngineError, Options, PromptProbs, Scales};
use terrace_ggml::llama::Sampling;
use terrace_serving::{
    BatchSlots, Event, Prompt, Refused, Serving, ServingOptions, SharePasses, Sink, Ticket,
};

pub const PLAIN: ServingOptions = ServingOptions {
    slots: 1,
    queue: 100,
    batch_slots: BatchSlots::Exact,
    share_passes: SharePasses::WhereReadsDecide,
    prefill_latency: None,
    lockstep: None,
};

/// Starts a worker.
pub fn serve(options: Options, serving: ServingOptions) -> Serving {
    Serving::start(
        load(Options {
            context: ContextOptions { sequences: serving.slots, unified: false, ..options.context },
            ..options
        }),
        serving,
    )
}

/// A job that is not yet checked against a model.
#[derive(Clone)]
pub struct Job {
    pub prompt: Vec<i32>,
    pub n_max: Option<usize>,
    pub sampling: Sampling,
    pub stop: Vec<String>,
    pub reuse: bool,
    /// How many tokens are reported beside each one, of the prompt as well.
    pub scored: Option<usize>,
    /// How many tokens are reported beside each one that is generated.
    pub probs: Option<usize>,
    pub scales: Scales,
}

impl Job {
    pub fn submit(self, serving: &Serving, sink: Sink) -> Result<Ticket, Refused> {
        let Self { prompt, n_max, sampling, stop, reuse, scored, probs, scales } = self;
        let prompt = Prompt::new(prompt, serving.facts())?;
        let lines = Default::default();
        let (scored, probs) = (scored.is_some(), probs.or(scored));
        let job = terrace_serving::Job {
            prompt,
            n_max,
            sampling,
            stop,
            lines,
            reuse,
            slot: None,
            probs,
            after_samplers: false,
            tokens: true,
            scored,
            scales,
        };
        serving.submit(serving.prepare(job)?, sink)
    }
}

pub fn job(prompt: &[i32], n: usize) -> Job {
    let sampling = Sampling::greedy();
    Job {
        prompt: prompt.to_vec(),
        n_max: Some(n),
        sampling,
        stop: Vec::new(),
        reuse: false,
        scored: None,
        probs: None,
        scales: Scales::default(),
    }
}

/// The answer to a job alone, in an unused context.
pub fn lone(engine: &mut Engine, job: &Job) -> Answer {
    let mut session = engine.session();
    engine
        .generate(&mut session, &job.prompt, job.n_max, &job.sampling, &mut |_| ControlFlow::Continue(()))
        .unwrap()
}

/// The events that a caller receives.
pub struct Reply {
    events: Receiver<Event>,
    /// Dropping it would end the job.
    _ticket: Ticket,
}

/// All results of a job.
pub struct Heard {
    pub started: Option<(usize, u64)>,
    pub progress: Vec<usize>,
    pub scored: Option<PromptProbs>,
    pub text: Vec<u8>,
    /// As they were told one by one.
    pub tokens: Vec<i32>,
    pub displaced: bool,
    pub end: Result<Answer, EngineError>,
}

pub fn ask(serving: &Serving, job: Job) -> Result<Reply, Refused> {
    let (send, events) = channel();
    let ticket = job.submit(serving, Box::new(move |event| to_flow(send.send(event).is_ok())))?;
    Ok(Reply { events, _ticket: ticket })
}

pub fn to_flow(go_on: bool) -> ControlFlow<()> {
    if go_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

impl Reply {
    /// The events of a job that was submitted.
    pub const fn new(events: Receiver<Event>, ticket: Ticket) -> Self {
        Self { events, _ticket: ticket }
    }

    /// Waits until the job has a slot: its prompt is evaluated next.
    pub fn wait_for_start(&self) {
        while !matches!(self.events.recv().unwrap(), Event::Started { .. }) {}
    }

    /// Waits for the end.
    pub fn all(self) -> Heard {
        let mut heard = Heard {
            started: None,
            progress: Vec::new(),
            scored: None,
            text: Vec::new(),
            tokens: Vec::new(),
            displaced: false,
            end: Err(EngineError::Cancelled),
        };
        for event in self.events {
            match event {
                Event::Started { reused, epoch, .. } => heard.started = Some((reused, epoch)),
                Event::Progress { evaluated } => heard.progress.push(evaluated),
                Event::Text(text) => heard.text.extend(text),
                Event::Finished(answer) => heard.end = Ok(*answer),
                Event::Scored(probs) => {
                    assert!(heard.text.is_empty() && heard.scored.is_none());
                    heard.scored = Some(probs);
                }
                Event::Token(token) => heard.tokens.push(token),
                // The answer has them, too.
                Event::Probs(_) => {}
                Event::Displaced => heard.displaced = true,
                Event::Failed(error) => heard.end = Err(error),
            }
        }
        heard
    }

    pub fn answer(self) -> Answer {
        self.all().end.unwrap()
    }
}
