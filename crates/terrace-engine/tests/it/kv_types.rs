//! Keys and values in each type that llama.cpp takes: tokens and logits equal stock llama.cpp's, bit for bit, and a
//! kept conversation continues as if it had not left the context.

use crate::budgets::two_bundles;
use crate::exactness::{difference, options, run};
use std::ops::ControlFlow;
use std::path::Path;
use terrace_engine::options::{
    ContextOptions, KernelChoice, KernelOptions, MemoryOptions, PromptCacheOptions,
};
use terrace_engine::prompt_cache::{read_file, write_file};
use terrace_engine::{Engine, Mode, Options};
use terrace_ggml::llama::Sampling;
use terrace_model::{KvType, KvTypes};
use terrace_plan::{Budget, KvChoice, Manage};
use terrace_testkit::{Arch, Spec};

/// All but F16, which the exactness suite has.
mod every_type_is_exact {
    use terrace_model::KvType;
    terrace_testkit::each!(super::exact:
        f32 = KvType::F32,
        bf16 = KvType::Bf16,
        q8_0 = KvType::Q8_0,
        q5_1 = KvType::Q5_1,
        q5_0 = KvType::Q5_0,
        q4_1 = KvType::Q4_1,
        iq4_nl = KvType::Iq4Nl,
        q4_0 = KvType::Q4_0,
    );
}

fn with(model: &Path, types: KvTypes) -> Options {
    let of = options(model);
    Options { context: ContextOptions { kv_type: KvChoice::Types(types), ..of.context }, ..of }
}

fn exact(ty: KvType) {
    terrace_testkit::needs_own_process();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let model = terrace_testkit::write(&Spec::new(Arch::Qwen3Moe), dir.path().join("model.gguf")).unwrap();
    // Keys, or values, alone as well.
    let pairs = [
        KvTypes::both(ty),
        KvTypes { keys: ty, values: KvType::F16 },
        KvTypes { keys: KvType::F16, values: ty },
    ];
    // First: once Terrace's device is registered, it takes the graphs.
    let stock =
        pairs.map(|types| run(Options { mode: Mode::Stock { repack: false }, ..with(&model, types) }).0);
    let plain = run(with(&model, KvTypes::F16)).0;
    for (types, stock) in pairs.into_iter().zip(&stock) {
        // F32 may give F16's logits: what follows attention rounds its result to fewer bits.
        let differs = stock.after_prompt != plain.after_prompt;
        assert!(differs || !ty.is_lossy(), "{types}: keys and values are stored as F16");
        for manage in [Manage::Experts, Manage::None] {
            let streams = manage != Manage::None;
            let ram_budget = if streams { Budget::Bytes(two_bundles(&model, manage)) } else { Budget::Auto };
            let of = with(&model, types);
            let memory = MemoryOptions { stream: manage, ram_budget, ..of.memory };
            let (got, stats) = run(Options { memory, ..with(&model, types) });
            assert!(got == *stock, "{types}, {manage}: {}", difference(&got, stock));
            assert_eq!(stats.unwrap().misses > 0, streams, "{types}, {manage}");
        }
    }
}

/// Logits of each of some steps after a prompt.
fn steps(engine: &mut Engine, session: &mut terrace_engine::Session, prompt: &[i32]) -> Vec<Vec<u32>> {
    let mut next = prompt.to_vec();
    (0..4)
        .map(|_| {
            let mut sink = |_: &[u8]| ControlFlow::Continue(());
            let answer = engine.generate(session, &next, Some(1), &Sampling::greedy(), &mut sink).unwrap();
            next = if answer.tokens.is_empty() { vec![5] } else { answer.tokens };
            engine.logits().unwrap().iter().map(|logit| logit.to_bits()).collect()
        })
        .collect()
}

#[test]
fn conversations_are_kept_in_every_type() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let model = terrace_testkit::write(&Spec::new(Arch::Llama), dir.path().join("model.gguf")).unwrap();
    let path = dir.path().join("kept");
    let tokens = |seed: i32, len: i32| (0..len).map(|i| 3 + (i * seed) % 250).collect::<Vec<i32>>();
    let mut before = None;
    let half = KvType::ALL.len() / 2;
    for (i, ty) in KvType::ALL.into_iter().enumerate() {
        let kernels = if i < half { KernelChoice::Fast } else { KernelChoice::Exact };
        let prompt_cache = PromptCacheOptions { files: true, ..PromptCacheOptions::default() };
        let kernels = KernelOptions { kernels };
        let of = Options { kernels, prompt_cache, ..with(&model, ty.into()) };
        let mut engine = Engine::load(of, &mut |_| ControlFlow::Continue(())).unwrap();
        let key = engine.cache_key().unwrap().clone();
        assert_eq!(key.kv_type, ty.name());
        let largest = std::fs::metadata(&path).map_or(u64::MAX, |file| file.len());
        let other = before.replace(ty);
        if let Some(other) = other.filter(|_| i != half) {
            let refused = read_file(&path, &key, 256).err().unwrap().to_string();
            assert!(refused.contains(&format!("keys and values, {other}")), "{refused}");
        }
        let mut session = engine.session();
        steps(&mut engine, &mut session, &tokens(7, 100));
        let kept = engine.keep(&session).unwrap();
        write_file(&mut std::fs::File::create(&path).unwrap(), &key, &kept).unwrap();
        let size = std::fs::metadata(&path).unwrap().len();
        let smaller = other.is_none_or(|other| ty.bytes(32) < other.bytes(32));
        assert!(!smaller || size < largest, "{ty}: {size} bytes after {largest}");
        let expected = steps(&mut engine, &mut session, &tokens(11, 20));
        let mut other = engine.session();
        steps(&mut engine, &mut other, &tokens(13, 90));
        let kept = read_file(&path, &key, 256).unwrap();
        let mut again = engine.session();
        let prompt = [kept.tokens(), &tokens(11, 20)].concat();
        let reused = engine.recall(&mut again, &kept, &prompt).unwrap();
        assert_eq!(reused, kept.tokens().len(), "{ty}");
        assert!(steps(&mut engine, &mut again, &prompt[reused..]) == expected, "{ty}");
    }
}
