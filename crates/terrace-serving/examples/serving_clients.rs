//! Measures the throughput that several callers get from one worker, with slots computed one by one,
//! together with the bits that each has alone, and together as ggml rounds:
//!
//! ```text
//! cargo run --release --example serving_clients -- MODEL TEXT CALLERS [TOKENS [MANAGE [RAM_BUDGET [THREADS [DIRECT]]]]]
//! ```
//!
//! CALLERS callers at a time request continuations of different parts of TEXT, three rounds in each
//! way, alternating. Prints medians of generated tokens per second of decoding,
//! over all callers, and of bytes read per token.

#![allow(clippy::print_stdout, reason = "an example, not part of the program")]
#![allow(clippy::disallowed_methods, reason = "an example reads files of its user")]

use std::error::Error;
use std::ops::ControlFlow;
use std::sync::mpsc::channel;
use terrace_engine::options::ContextOptions;
use terrace_engine::{Answer, Engine, Options};
use terrace_ggml::llama::Sampling;
use terrace_serving::{BatchSlots, Event, Job, Prompt, Refused, Serving, ServingOptions, ServingStatus};

const PROMPT: usize = 16;
const ROUNDS: usize = 3;
const WAYS: [BatchSlots; 3] = [BatchSlots::Off, BatchSlots::Exact, BatchSlots::On];

/// Results of one round.
#[derive(Clone, Copy)]
struct Rate {
    /// Tokens per second of decoding.
    decode: f64,
    /// MiB read per generated token.
    read: f64,
    /// Tokens per second from the first job to the end of the last, prompts included.
    whole: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [model, text, callers, rest @ ..] = args.as_slice() else {
        return Err("arguments: MODEL TEXT CALLERS [TOKENS [MANAGE [RAM_BUDGET [THREADS [DIRECT]]]]]".into());
    };
    let callers: u32 = callers.parse()?;
    let tokens: usize = rest.first().map_or(Ok(48), |n| n.parse())?;
    let mut options = Options {
        model: model.into(),
        context: ContextOptions {
            ctx: Some(512),
            sequences: callers,
            unified: false,
            ..ContextOptions::default()
        },
        ..Options::default()
    };
    if let Some(manage) = rest.get(1) {
        options.memory.stream = manage.parse()?;
    }
    if let Some(budget) = rest.get(2) {
        options.memory.ram_budget = budget.parse()?;
    }
    options.compute.threads = rest.get(3).map(|n| n.parse()).transpose()?;
    if let Some(direct) = rest.get(4) {
        options.io.direct = direct.parse()?;
    }
    let text = std::fs::read_to_string(text)?;
    let mut engine = Engine::load(options, &mut |_| ControlFlow::Continue(()))?;
    println!("{}", engine.plan());
    let all = engine.tokenize(&text, false, false)?;
    let prompts: Vec<&[i32]> = all.chunks_exact(PROMPT).collect();
    let mut rates = WAYS.map(|_| Vec::new());
    for round in 0..=ROUNDS {
        for (way, batch_slots) in WAYS.into_iter().enumerate() {
            let options = ServingOptions { slots: callers, batch_slots, ..ServingOptions::default() };
            let serving = Serving::start(engine, options);
            // The first round warms up.
            let begin = round * callers as usize;
            let rate = measure(&serving, &prompts[begin..begin + callers as usize], tokens)?;
            if round > 0 {
                rates[way].push(rate);
            }
            engine = serving.stop();
        }
    }
    println!("callers  together  decode tok/s  (min - max)  MiB/token  tok/s with prompts");
    for (way, mut rates) in WAYS.into_iter().zip(rates) {
        rates.sort_by(|a, b| a.decode.total_cmp(&b.decode));
        let (min, median, max) = (rates[0], rates[rates.len() / 2], rates[rates.len() - 1]);
        println!(
            "{callers:7}  {:>8}  {:12.2}  ({:.2} - {:.2})  {:9.1}  {:.2}",
            format!("{way:?}"),
            median.decode,
            min.decode,
            max.decode,
            median.read,
            median.whole
        );
    }
    Ok(())
}

fn measure(serving: &Serving, prompts: &[&[i32]], tokens: usize) -> Result<Rate, Box<dyn Error>> {
    let before = serving.status();
    let begin = std::time::Instant::now();
    let answers = prompts
        .iter()
        .map(|prompt| {
            let (send, answer) = channel::<Result<Answer, String>>();
            let job = Job {
                prompt: Prompt::new(prompt.to_vec(), serving.facts())?,
                n_max: Some(tokens),
                sampling: Sampling::greedy(),
                stop: Vec::new(),
                lines: Default::default(),
                reuse: false,
                slot: None,
                probs: None,
                after_samplers: false,
                tokens: false,
                scored: false,
                scales: Default::default(),
            };
            let sink = move |event| {
                match event {
                    Event::Finished(answer) => drop(send.send(Ok(*answer))),
                    Event::Failed(error) => drop(send.send(Err(error.to_string()))),
                    _ => {}
                }
                ControlFlow::Continue(())
            };
            serving.submit(serving.prepare(job)?, Box::new(sink)).map(|ticket| (answer, ticket))
        })
        .collect::<Result<Vec<_>, Refused>>()?;
    let mut generated = 0;
    for (answer, _ticket) in answers {
        generated += answer.recv()??.tokens.len();
    }
    let seconds = begin.elapsed().as_secs_f64();
    let after = serving.status();
    let read = |status: &ServingStatus| status.store.map_or(0, |store| store.bytes_read.bytes()) as f64;
    // Each job's first token comes from its prompt.
    let decoded = (generated - prompts.len()) as f64;
    Ok(Rate {
        decode: decoded / (after.totals.decode_seconds - before.totals.decode_seconds),
        read: (read(&after) - read(&before)) / generated as f64 / f64::from(1 << 20),
        whole: generated as f64 / seconds,
    })
}
