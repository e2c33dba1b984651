//! The bundled model with the backend alone: first stock logits, then the same from streamed
//! experts.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use terrace_backend::{Cut, Layout, Terrace, Weights};
use terrace_ggml::llama::{Context, ContextParams, FlashAttention, LoadParams, Model, Token};
use terrace_ggml::testing::params::context_params;
use terrace_model::ByteSize;
use terrace_store::{Store, StoreConfig};

const PROMPT: &str = "In the beginning God created the heaven and the earth. And the earth was without form, and void; \
and darkness was upon the face of the deep. And the Spirit of God moved upon the face of the waters. And God said, Let \
there be light: and there was light. And God saw the light, that it was good: and God divided the light from the \
darkness. And God called the light Day, and the darkness he called Night. And the evening and the morning were the first day.";

fn bundled() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models/tiny-moe-Q4_K.gguf")
}

/// Logits after the prompt and after each of eight greedy tokens.
fn trace(model: Arc<Model>, flash_attention: FlashAttention) -> Vec<Vec<u32>> {
    let params = ContextParams { threads: 2, threads_batch: 2, flash_attention, ..context_params(512) };
    let mut tokens = model.vocab().tokenize(PROMPT, true, false).unwrap();
    assert!(tokens.len() > 100, "{} tokens", tokens.len());
    let mut context = Context::new(model, &params, Arc::new(AtomicBool::new(false))).unwrap();
    let mut rows = Vec::new();
    for _ in 0..9 {
        context.decode(&mut tokens).unwrap();
        let logits = context.logits().unwrap();
        assert!(logits.iter().all(|l| l.is_finite()));
        let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
        rows.push(logits.iter().map(|l| l.to_bits()).collect());
        tokens = vec![Token(i32::try_from(best).unwrap())];
    }
    rows
}

#[test]
fn streamed_logits_are_stock_logits() {
    let path = bundled();
    let stock = Model::load(&path, &LoadParams::default()).unwrap();
    let expected = trace(Arc::new(stock), FlashAttention::Auto);

    let file = terrace_ggml::gguf::read(&path).unwrap();
    let terrace = Terrace::install().unwrap();
    // Slots for everything, for a few experts at a time, and the smallest budget, which holds two
    // of them.
    for budget in [ByteSize::mib(64), ByteSize::mib(2), ByteSize::kib(96)] {
        let experts = file.tensors.iter().filter(|t| t.name.contains("_exps"));
        let layout = Layout::new(experts.map(|t| (t, Cut::PerExpert { experts: 32 })));
        let config = StoreConfig { budget, ..StoreConfig::default() };
        let store = Store::open(vec![path.clone()], layout.blocks(), config).unwrap();
        let weights = Arc::new(Weights::new(&file, layout, store));
        let overrides = vec![("_exps".to_string(), terrace.managed()), (".".to_string(), terrace.resident())];
        let model = {
            let _scope = terrace.loading(Arc::clone(&weights));
            let processor = Some(terrace.processor());
            Model::load(&path, &LoadParams { overrides, processor, ..LoadParams::default() }).unwrap()
        };
        weights.fill_resident(&mut |_| std::ops::ControlFlow::Continue(())).unwrap();
        let got = trace(Arc::new(model), FlashAttention::On);
        for (step, (got, expected)) in got.iter().zip(&expected).enumerate() {
            let differing = got.iter().zip(expected).filter(|(a, b)| a != b).count();
            assert_eq!(
                differing,
                0,
                "budget {budget}, step {step}: {differing} of {} logits differ",
                got.len()
            );
        }
        let stats = weights.store().stats();
        println!("{budget}: {stats:?}");
        assert!(stats.misses > 0);
    }
}
