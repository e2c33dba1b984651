//! Logits of selected tokens of a call.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use terrace_ggml::llama::{Context, ContextParams, LoadParams, Model};
use terrace_ggml::testing::params::context_params;

/// Rows belong to the call's last tokens, in order, however many are kept, even if graphs have
/// fewer tokens than the call.
#[test]
fn rows_follow_the_tokens() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models/tiny-moe-Q4_K.gguf");
    let model = Arc::new(Model::load(&path, &LoadParams::default()).unwrap());
    let vocab = model.vocab().len();
    let params = ContextParams {
        batch: 64,
        ubatch: 16,
        outputs: 512,
        threads: 2,
        threads_batch: 2,
        ..context_params(256)
    };
    let text =
        "In the beginning God created the heaven and the earth. And the earth was without form, and void;";
    let mut tokens = model.vocab().tokenize(text, true, false).unwrap();
    tokens.truncate(20);
    assert_eq!(tokens.len(), 20);
    let mut context = Context::new(Arc::clone(&model), &params, Arc::new(AtomicBool::new(false))).unwrap();
    let mut rows = |first: usize| -> Vec<f32> {
        context.clear();
        context.decode_keeping(&mut tokens, first).unwrap();
        let rows = context.outputs().to_vec();
        if let Some(last) = rows.len().checked_sub(vocab) {
            assert_eq!(&rows[last..], context.logits().unwrap());
        }
        rows
    };
    let all = rows(0);
    assert_eq!(all.len(), 20 * vocab);
    assert!(all[..vocab] != all[vocab..2 * vocab]);
    for first in [1, 7, 15, 16, 19] {
        // Fewer rows may be computed with another kernel at the end: equal up to its rounding.
        let got = rows(first);
        assert_eq!(got.len(), (20 - first) * vocab, "{first}");
        let far = got.iter().zip(&all[first * vocab..]).filter(|(a, b)| (**a - **b).abs() > 1e-2);
        assert_eq!(far.count(), 0, "{first}");
    }
    assert!(rows(20).is_empty() && rows(99).is_empty());
}
