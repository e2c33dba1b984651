//! Perplexity, compared with an independent computation: logits one token at a time, softmax in
//! double precision.

use crate::bundled;
use crate::bundled::models;
use std::ops::ControlFlow;
use terrace_engine::options::{ComputeOptions, ContextOptions, MemoryOptions};
use terrace_engine::{Engine, EngineError, Mode, Options};
use terrace_eval::{EvalError, PerplexityOptions, PerplexityReport, perplexity};
use terrace_ggml::llama::Sampling;
use terrace_model::ByteSize;
use terrace_plan::{Budget, Manage};

const CONTEXT: usize = 128;
const CHUNKS: usize = 2;

fn load(mode: Mode, budget: Budget) -> Engine {
    bundled::load(Options {
        mode,
        memory: MemoryOptions {
            stream: if budget == Budget::Auto { Manage::Auto } else { Manage::Experts },
            ram_budget: budget,
            ..MemoryOptions::default()
        },
        context: ContextOptions { outputs: 256, ctx: Some(256), ..ContextOptions::default() },
        ..Options::default()
    })
}

fn tokens(engine: &Engine) -> Vec<i32> {
    bundled::tokens(engine, 8000)
}

fn measure(engine: &mut Engine, tokens: &[i32]) -> PerplexityReport {
    let options = PerplexityOptions { context: CONTEXT, chunks: Some(CHUNKS) };
    let mut told = Vec::new();
    let report = perplexity(engine, tokens, &options, &mut |progress| {
        told.push(progress.done);
        assert_eq!(progress.chunks, CHUNKS);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(told, [1, 2]);
    report
}

/// Negative log likelihoods of the second half of each chunk, by definition: each token's from a
/// text that ends before it. They agree only up to rounding, since ggml uses different kernels for
/// different numbers of tokens.
fn by_definition(engine: &mut Engine, tokens: &[i32]) -> Vec<f64> {
    let mut all = Vec::new();
    // If the model expects a BOS token, it replaces the first token of every chunk.
    let marked =
        engine.tokenize("and", true, false).unwrap() != engine.tokenize("and", false, false).unwrap();
    for chunk in tokens.chunks_exact(CONTEXT).take(CHUNKS) {
        let mut chunk = chunk.to_vec();
        if marked {
            chunk[0] = tokens[0];
        }
        for end in CONTEXT / 2 + 1..CONTEXT {
            let mut session = engine.session();
            let go_on = &mut |_: &[u8]| ControlFlow::Continue(());
            engine.generate(&mut session, &chunk[..end], Some(0), &Sampling::greedy(), go_on).unwrap();
            let logits = engine.logits().unwrap();
            let sum: f64 = logits.iter().map(|&l| f64::from(l).exp()).sum();
            let target = logits[usize::try_from(chunk[end]).unwrap()];
            all.push(-(f64::from(target).exp() / sum).ln());
        }
    }
    all
}

/// One test, since the stock reference has to be computed before the Terrace device is registered.
#[test]
fn streamed_stock_and_by_definition() {
    let mut stock = load(Mode::Stock { repack: false }, Budget::Auto);
    let tokens = tokens(&stock);
    let expected = measure(&mut stock, &tokens);

    let nll = by_definition(&mut stock, &tokens);
    assert_eq!(nll.len(), expected.nll.len());
    assert_eq!(nll.len(), CHUNKS * (CONTEXT / 2 - 1));
    let n = nll.len() as f64;
    let mean = nll.iter().sum::<f64>() / n;
    let deviation = (nll.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n * (n - 1.0))).sqrt();
    let close = |a: f64, b: f64| (a - b).abs() < 1e-3 * b;
    assert!(close(expected.perplexity, mean.exp()), "{} and {}", expected.perplexity, mean.exp());
    assert!(close(expected.error.unwrap(), deviation * mean.exp()), "{:?}", expected.error);
    drop(stock);

    for budget in [Budget::Bytes(ByteSize::mib(4)), Budget::Auto] {
        let mut engine = load(Mode::Terrace, budget);
        let report = measure(&mut engine, &tokens);
        assert_eq!(report.nll, expected.nll, "{budget}");
        assert_eq!(report.perplexity.to_bits(), expected.perplexity.to_bits());
    }

    // With several calls per chunk and several graphs per call, the result is the same up to
    // rounding of attention.
    let options = Options {
        model: models().join("tiny-moe-Q4_K.gguf"),
        context: ContextOptions {
            batch: 20,
            outputs: 20,
            ubatch: Some(7),
            ctx: Some(256),
            ..ContextOptions::default()
        },
        compute: ComputeOptions { threads: Some(1), ..ComputeOptions::default() },
        ..Options::default()
    };
    let mut engine = Engine::load(options, &mut |_| ControlFlow::Continue(())).unwrap();
    let report = measure(&mut engine, &tokens);
    assert_eq!(report.nll.len(), expected.nll.len());
    assert!((report.perplexity / expected.perplexity - 1.0).abs() < 0.02, "{}", report.perplexity);

    refusals(&mut engine, &tokens);
}

fn refusals(engine: &mut Engine, tokens: &[i32]) {
    let mut attempt = |n: usize, context, flow: ControlFlow<()>| {
        let options = PerplexityOptions { context, chunks: None };
        perplexity(engine, &tokens[..n], &options, &mut |_| flow).unwrap_err()
    };
    let go_on = ControlFlow::Continue(());
    let short = attempt(127, 64, go_on);
    assert!(matches!(short, EvalError::TextTooShort { tokens: 127, context: 64 }), "{short}");
    assert!(short.to_string().contains("127") && short.to_string().contains("128"), "{short}");
    let EvalError::Engine(long) = attempt(1200, 512, go_on) else { panic!("another error") };
    assert!(matches!(*long, EngineError::PromptTooLong { context: 256, .. }), "{long}");
    assert!(matches!(attempt(128, 64, ControlFlow::Break(())), EvalError::Cancelled));

    // An engine loaded for generation keeps the logits of one token.
    let options = Options {
        model: models().join("tiny-moe-Q4_K.gguf"),
        context: ContextOptions { ctx: Some(256), ..ContextOptions::default() },
        compute: ComputeOptions { threads: Some(1), ..ComputeOptions::default() },
        ..Options::default()
    };
    let mut engine = Engine::load(options, &mut |_| ControlFlow::Continue(())).unwrap();
    let options = PerplexityOptions { context: 64, chunks: Some(1) };
    let error = perplexity(&mut engine, tokens, &options, &mut |_| go_on).unwrap_err();
    assert!(error.to_string().contains("logits of 32 tokens"), "{error}");
}
