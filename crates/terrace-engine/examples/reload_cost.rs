//! Measures the cost of replacing a tensor, compared with loading the whole model:
//!
//! ```text
//! cargo run --release --example reload_cost -- MODEL DONOR TENSOR [MANAGE [RAM_BUDGET [DIRECT]]]
//! ```
//!
//! Takes TENSOR from DONOR and returns it, 20 times, with a generated token after each, and prints
//! medians in milliseconds.

#![allow(clippy::print_stdout, reason = "an example, not part of the program")]

use std::error::Error;
use std::ops::ControlFlow;
use std::time::Instant;
use terrace_engine::options::ContextOptions;
use terrace_engine::{Engine, Options, ReloadReport, Replacement, Source};
use terrace_ggml::llama::Sampling;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [model, donor, tensor, rest @ ..] = args.as_slice() else {
        return Err("arguments: MODEL DONOR TENSOR [MANAGE [RAM_BUDGET [DIRECT]]]".into());
    };
    let mut options = Options {
        model: model.into(),
        context: ContextOptions { ctx: Some(512), ..ContextOptions::default() },
        ..Options::default()
    };
    if let Some(manage) = rest.first() {
        options.memory.stream = manage.parse()?;
    }
    if let Some(budget) = rest.get(1) {
        options.memory.ram_budget = budget.parse()?;
    }
    if let Some(direct) = rest.get(2) {
        options.io.direct = direct.parse()?;
    }
    let mut engine = Engine::load(options, &mut |_| ControlFlow::Continue(()))?;
    let prompt = engine.tokenize("The water goes down", true, false)?;
    let token = |engine: &mut Engine| -> Result<(Vec<i32>, f64), Box<dyn Error>> {
        let mut session = engine.session();
        let begin = Instant::now();
        let got = engine.generate(&mut session, &prompt, Some(1), &Sampling::greedy(), &mut |_| {
            ControlFlow::Continue(())
        })?;
        Ok((got.tokens, begin.elapsed().as_secs_f64() * 1e3))
    };
    let swap =
        |engine: &mut Engine, from: Source| engine.swap(&[Replacement { tensor: tensor.clone(), from }]);
    let (golden, first) = token(&mut engine)?;
    let (mut there, mut back, mut behind) = (Vec::new(), Vec::new(), Vec::new());
    let mut last = ReloadReport::default();
    for _ in 0..20 {
        last = swap(&mut engine, Source::File(donor.into()))?;
        there.push(last.seconds * 1e3);
        behind.push(token(&mut engine)?.1);
        back.push(swap(&mut engine, Source::Original)?.seconds * 1e3);
        assert_eq!(token(&mut engine)?.0, golden, "what returned is what was loaded");
    }
    let again = token(&mut engine)?.1;
    println!("{last}");
    println!("load {:.1} ms; prompt and token: first {first:.1} ms, later {again:.1}", engine.load_ms());
    println!("right behind a reload {:.1} ms", median(behind));
    println!("reload {:.2} ms, return {:.3} ms", median(there), median(back));
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
