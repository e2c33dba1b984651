//! Divergence from a base, compared with an independent computation: both models' logits one token
//! at a time, in double precision. What is compared with it has passes of one token, since those of several are computed by
//! other kernels, whose sums round in another way on each processor.

use crate::bundled;
use std::ops::ControlFlow;
use std::path::Path;
use tempfile::TempDir;
use terrace_engine::options::ContextOptions;
use terrace_engine::{Engine, KvChoice, Options};
use terrace_eval::{
    BaseLogits, DivergenceReport, EvalError, LogitsFile, PerplexityOptions, PerplexityProgress, divergence,
    perplexity, save_logits,
};
use terrace_ggml::llama::Sampling;
use terrace_model::ByteSize;
use terrace_model::KvType;

const OPTIONS: PerplexityOptions = PerplexityOptions { context: 96, chunks: Some(3) };

/// The bundled model. Its predictions differ with 4-bit keys and values.
fn load(kv_type: KvType, batch: u32, ubatch: Option<u32>) -> Engine {
    bundled::load(Options {
        context: ContextOptions {
            kv_type: KvChoice::Types(kv_type.into()),
            batch,
            ubatch,
            outputs: batch.min(256),
            ctx: Some(256),
            ..ContextOptions::default()
        },
        ..Options::default()
    })
}

fn tokens(engine: &Engine) -> Vec<i32> {
    bundled::tokens(engine, 4000)
}

/// Probabilities of all tokens at the scored positions of the first chunk, each after the text that
/// ends before it.
fn probabilities(engine: &mut Engine, tokens: &[i32]) -> Vec<Vec<f64>> {
    let mut session = engine.session();
    let mut done = 0;
    (OPTIONS.context / 2 + 1..OPTIONS.context)
        .map(|end| {
            let next = &tokens[std::mem::replace(&mut done, end)..end];
            let go_on = &mut |_: &[u8]| ControlFlow::Continue(());
            engine.generate(&mut session, next, Some(0), &Sampling::greedy(), go_on).unwrap();
            let logits = engine.logits().unwrap();
            let sum: f64 = logits.iter().map(|&l| f64::from(l).exp()).sum();
            logits.iter().map(|&l| f64::from(l).exp() / sum).collect()
        })
        .collect()
}

fn diverge(engine: &mut Engine, text: &[i32], base: &mut BaseLogits) -> DivergenceReport {
    let mut told = Vec::new();
    let report = divergence(engine, text, &OPTIONS, base, &mut |progress| {
        told.push((progress.done, progress.chunks, progress.so_far.scored));
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(told, [(1, 3, 47), (2, 3, 94), (3, 3, 141)]);
    report
}

/// An engine with passes of so many tokens, the text, and the base that the engine saved, which differs from it in nothing.
fn saved(path: &Path, ubatch: Option<u32>) -> (Engine, Vec<i32>, BaseLogits) {
    let go_on = &mut |_: &PerplexityProgress| ControlFlow::Continue(());
    // Two calls per chunk, so that the rows come in pieces.
    let mut engine = load(KvType::F16, 64, ubatch);
    let tokens = tokens(&engine);
    let plain = perplexity(&mut engine, &tokens, &OPTIONS, go_on).unwrap();
    let saved =
        save_logits(&mut engine, &tokens, &OPTIONS, LogitsFile::create(path).unwrap(), go_on).unwrap();
    assert_eq!(saved.nll, plain.nll, "saving changes nothing");

    let mut base = BaseLogits::open(path).unwrap();
    assert_eq!(base.tokens()[..], tokens[..3 * 96]);
    let itself = diverge(&mut engine, &tokens, &mut base);
    let nll: Vec<f64> = itself.compared.iter().map(|c| c.nll).collect();
    assert_eq!(nll, plain.nll, "the figures of a perplexity run");
    assert_eq!(itself.summary.perplexity.value.to_bits(), plain.perplexity.to_bits());
    assert!(itself.summary.kld.value.abs() < 1e-5, "{:?}", itself.summary.kld);
    assert!(itself.summary.same_top.value > 0.98 && itself.summary.delta_p_rms.value < 1e-4);
    (engine, tokens, base)
}

#[test]
fn saved_compared_and_by_definition() {
    let dir = TempDir::new().unwrap();
    drop(saved(&dir.path().join("of whole passes"), None));

    let path = dir.path().join("base");
    let (mut engine, tokens, mut base) = saved(&path, Some(1));
    let exact = probabilities(&mut engine, &tokens);
    drop(engine);

    let mut engine = load(KvType::Q4_0, 2048, Some(1));
    let text = base.tokens();
    let from_file = diverge(&mut engine, &text, &mut base);
    assert!(base.keep_in_memory(ByteSize::mib(10)).unwrap());
    std::fs::remove_file(&path).unwrap();
    let again = diverge(&mut engine, &text, &mut base);
    assert_eq!(again.compared, from_file.compared, "from memory, and twice");

    let own = probabilities(&mut engine, &tokens);
    let mut klds = 0.0;
    for (i, (p, q)) in exact.iter().zip(&own).enumerate() {
        let compared = from_file.compared[i];
        let target = usize::try_from(tokens[OPTIONS.context / 2 + 1 + i]).unwrap();
        let kld: f64 = p.iter().zip(q).map(|(p, q)| p * (p / q).ln()).sum();
        klds += kld - compared.kld;
        // The base's logits are rounded in the file, as this format has them.
        assert!((compared.kld - kld).abs() < 2e-4, "{i}: {} and {kld}", compared.kld);
        assert!((compared.nll + q[target].ln()).abs() < 1e-6, "{i}");
        assert!((compared.nll_base + p[target].ln()).abs() < 1e-3, "{i}");
        assert!((compared.delta_p - (q[target] - p[target])).abs() < 1e-4, "{i}");
    }
    assert!(klds.abs() / (exact.len() as f64) < 0.01 * from_file.summary.kld.value, "{klds}");
    assert!(
        from_file.summary.kld.value > 1e-3,
        "4-bit caches make a difference: {:?}",
        from_file.summary.kld
    );

    let mut refused = |text: &[i32], options: PerplexityOptions| {
        let error = divergence(&mut engine, text, &options, &mut base, &mut |_| ControlFlow::Continue(()))
            .unwrap_err();
        assert!(matches!(error, EvalError::BaseLogits(_)), "{error}");
        error.to_string()
    };
    assert!(
        refused(&tokens, PerplexityOptions { context: 128, chunks: None }).contains("96 tokens, not 128")
    );
    assert!(refused(&tokens[1..], OPTIONS).contains("token 0 is"));
    // No more chunks than there are.
    let more = PerplexityOptions { context: 96, chunks: Some(4) };
    let all = divergence(&mut engine, &tokens, &more, &mut base, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(all.chunks, 3);
}
