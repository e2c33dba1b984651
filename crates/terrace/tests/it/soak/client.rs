//! A client: asks, compares, misbehaves.

use super::State;
use super::constrained::Constrained;
use super::figures::Figures;
use super::hostile::hostile;
use super::requests::{LENGTHS, body, by_chance, wrong};
use super::slot_files::slot_file;
use crate::wire::{Head, Received, Wire, get, post};
use serde_json::Value;
use std::fmt::Display;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time until a client asks again after the queue was full.
const PAUSE: Duration = Duration::from_millis(50);

pub struct Client<'a> {
    state: State<'a>,
    random: fastrand::Rng,
    /// A connection on which the last request was answered.
    kept: Option<Wire>,
    pub figures: Figures,
}

/// What is wrong.
type Failure = String;

fn failure(what: impl Display) -> Failure {
    what.to_string()
}

impl<'a> Client<'a> {
    /// A client that does the same things for the same number, as far as the server does.
    pub fn new(state: State<'a>, number: u64) -> Self {
        Self { state, random: fastrand::Rng::with_seed(number), kept: None, figures: Figures::default() }
    }

    /// Sends requests until the soak ends.
    pub fn run(&mut self) {
        while !self.state.stop.load(Ordering::Relaxed) {
            let done = match self.random.u8(0..100) {
                0..48 => self.exact(),
                48..55 => self.constrained(),
                55..65 => self.by_chance(),
                65..78 => self.leave(),
                78..87 => self.wrong(),
                87..92 => self.hostile(),
                92..94 => self.slot_file(),
                _ => self.look(),
            };
            if let Err(what) = done {
                return self.state.fail(what);
            }
        }
    }

    fn wire(&mut self) -> Result<Wire, Failure> {
        let kept = self.kept.take().filter(|_| self.random.bool());
        kept.map_or_else(|| Wire::try_connect(self.state.server).map_err(failure), Ok)
    }

    fn ask(&mut self, request: &str) -> Result<(Wire, Received), Failure> {
        let mut wire = self.wire()?;
        wire.send(request).map_err(failure)?;
        let received = wire.receive().map_err(|error| format!("{error}: {}", start(request)))?;
        Ok((wire, received))
    }

    /// A random prompt and number of tokens, by their places.
    fn choose(&mut self) -> (usize, usize) {
        (self.random.usize(..self.state.golden.prompts.all().len()), self.random.usize(..LENGTHS.len()))
    }

    fn prompt(&self, prompt: usize) -> &'a str {
        &self.state.golden.prompts.all()[prompt]
    }

    /// Asks for a greedy text, and compares it.
    fn exact(&mut self) -> Result<(), Failure> {
        let ((prompt, length), stream) = (self.choose(), self.random.bool());
        let request = post("/v1/completions", &body(self.prompt(prompt), LENGTHS[length], stream));
        let (wire, text, facts) = if stream {
            let mut wire = self.wire()?;
            let Some((text, facts)) = self.stream(&mut wire, &request)? else { return Ok(()) };
            (wire, text, facts)
        } else {
            let (wire, received) = self.ask(&request)?;
            if self.is_refused(&received.head)? {
                return Ok(());
            }
            let answer = received.json();
            let text = answer["choices"][0]["text"].as_str().ok_or_else(|| failure(&answer))?;
            (wire, text.to_owned(), answer["terrace"].clone())
        };
        self.kept = Some(wire);
        let epoch = |name: &str| {
            let epoch = facts[name].as_u64().and_then(|epoch| usize::try_from(epoch).ok());
            epoch.ok_or_else(|| failure(&facts))
        };
        let (first, last) = (epoch("epoch_first")?, epoch("epoch_last")?);
        if first != last {
            self.figures.spanning += 1;
            return Ok(());
        }
        let golden = self.state.golden.text(self.state.epochs.variant(first), prompt, length);
        if text != golden {
            return Err(format!(
                "epoch {first}, prompt {prompt}, {} tokens: {text:?}, not {golden:?}",
                LENGTHS[length]
            ));
        }
        self.figures.exact += 1;
        Ok(())
    }

    /// The text of a stream, and what its last event says about it; measured. `None` if it was
    /// refused.
    fn stream(&mut self, wire: &mut Wire, request: &str) -> Result<Option<(String, Value)>, Failure> {
        let mut last = Instant::now();
        wire.send(request).map_err(failure)?;
        let head = wire.head().map_err(failure)?;
        if !head.is_chunked() {
            return if self.is_refused(&head)? { Ok(None) } else { Err(format!("not a stream: {head:?}")) };
        }
        let (mut text, mut facts, mut done) = (String::new(), Value::Null, false);
        while let Some(chunk) = wire.chunk().map_err(failure)? {
            for data in chunk.lines().filter_map(|line| line.strip_prefix("data: ")) {
                if data == "[DONE]" {
                    done = true;
                    continue;
                }
                let event: Value = serde_json::from_str(data).map_err(failure)?;
                if let Some(error) = event.get("error") {
                    return Err(failure(error));
                }
                let piece = event["choices"][0]["text"].as_str().unwrap_or_default();
                if !piece.is_empty() {
                    let times =
                        if text.is_empty() { &mut self.figures.first } else { &mut self.figures.between };
                    times.push(last.elapsed().as_secs_f32());
                    last = Instant::now();
                }
                text += piece;
                facts = event["terrace"].clone();
            }
        }
        if done { Ok(Some((text, facts))) } else { Err(format!("a stream ends without [DONE]: {text}")) }
    }

    /// Whether the queue was full.
    fn is_refused(&mut self, head: &Head) -> Result<bool, Failure> {
        match head.status {
            200 => Ok(false),
            429 => {
                self.figures.full += 1;
                std::thread::sleep(PAUSE);
                Ok(true)
            }
            other => Err(format!("status {other}")),
        }
    }

    fn by_chance(&mut self) -> Result<(), Failure> {
        let prompt = self.choose().0;
        let request = by_chance(self.prompt(prompt), &mut self.random);
        let (wire, received) = self.ask(&request)?;
        if !self.is_refused(&received.head)? {
            self.kept = Some(wire);
            self.figures.by_chance += 1;
        }
        Ok(())
    }

    /// Asks for an answer of some form, and checks it.
    fn constrained(&mut self) -> Result<(), Failure> {
        let prompt = self.choose().0;
        let asked = Constrained::new(self.prompt(prompt), &mut self.random);
        let (wire, received) = self.ask(&asked.request)?;
        if !self.is_refused(&received.head)? {
            self.kept = Some(wire);
            self.figures.constrained += u64::from(asked.check(&received.json())?);
        }
        Ok(())
    }

    /// Disconnects somewhere between the first byte of a request and the last one of the answer.
    fn leave(&mut self) -> Result<(), Failure> {
        let ((prompt, length), stream) = (self.choose(), self.random.bool());
        let mut request = post("/v1/completions", &body(self.prompt(prompt), LENGTHS[length], stream));
        let mut wire = self.wire()?;
        let whole = match self.random.u8(0..4) {
            0 => {
                request.truncate(self.random.usize(..request.len()));
                false
            }
            // It has sent the next request, or part of it, as well.
            1 => {
                request += &get("/health")[self.random.usize(..10)..];
                true
            }
            _ => true,
        };
        // The server may have closed a connection that was kept.
        let _ = wire.send(&request);
        match self.random.u8(0..4) {
            0 => std::thread::sleep(Duration::from_millis(self.random.u64(..100))),
            1 if stream && whole => {
                let streams = wire.head().is_ok_and(|head| head.is_chunked());
                let chunks = if streams { self.random.u8(..6) } else { 0 };
                (0..chunks).try_for_each(|_| wire.chunk().ok().flatten().map(drop));
            }
            _ => {}
        }
        if self.random.bool() {
            wire.reset();
        }
        self.figures.left += 1;
        Ok(())
    }

    fn wrong(&mut self) -> Result<(), Failure> {
        let (status, request) = wrong(&mut self.random);
        let (_, received) = self.ask(&request)?;
        if received.head.status != status {
            return Err(format!("{received:?}, not {status}: {}", start(&request)));
        }
        self.figures.refused += u64::from(status >= 400);
        Ok(())
    }

    /// Sends a request that is meant to harm the server: anything but a server error may answer it.
    fn hostile(&mut self) -> Result<(), Failure> {
        let prompt = self.choose().0;
        let request = hostile(self.prompt(prompt), &mut self.random);
        self.answered(&request)?;
        self.figures.hostile += 1;
        Ok(())
    }

    fn slot_file(&mut self) -> Result<(), Failure> {
        let request = slot_file(&mut self.random);
        self.figures.slot_files += u64::from(self.answered(&request)? == 200);
        Ok(())
    }

    /// The status of the answer, which must not be a server error.
    fn answered(&mut self, request: &str) -> Result<u16, Failure> {
        let (_, received) = self.ask(request)?;
        match received.head.status {
            status @ ..500 => Ok(status),
            _ => Err(format!("{received:?}: {}", start(request))),
        }
    }

    /// Looks at what the server says about itself.
    fn look(&mut self) -> Result<(), Failure> {
        const PATHS: [&str; 6] = ["/health", "/metrics", "/slots", "/props", "/v1/models", "/"];
        let path = PATHS[self.random.usize(..PATHS.len())];
        let (wire, received) = self.ask(&get(path))?;
        self.kept = Some(wire);
        if received.head.status == 200 { Ok(()) } else { Err(format!("{path}: {received:?}")) }
    }
}

fn start(request: &str) -> &str {
    &request[..request.floor_char_boundary(200)]
}
