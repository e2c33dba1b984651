//! Tables that are read by row: exact beyond 4 GiB, in few requests, ahead of the graphs that need them.

use crate::budgets::minimum;
use crate::exactness::{self, difference};
use crate::reloading::{self, dir};
use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use terrace_engine::options::{ContextOptions, MemoryOptions};
use terrace_engine::{Engine, Mode, Options};
use terrace_ggml::llama::Sampling;
use terrace_model::{ByteSize, TensorInfo};
use terrace_plan::{Budget, Manage};
use terrace_store::RowStats;
use terrace_testkit::{Arch, Spec, WeightType};

const TABLE: &str = "per_layer_token_embd.weight";

/// A model with embeddings for each layer, whose table has more than 4 GiB: rows of 105 KiB.
fn large() -> Spec {
    Spec {
        embd: 64,
        ff: 128,
        expert_ff: 64,
        per_layer: 8960,
        vocab: 40_960,
        expert_type: WeightType::Q8_0,
        other_type: WeightType::Q8_0,
        overrides: vec![("per_layer_token_embd".into(), WeightType::F32)],
        ..Spec::new(Arch::Gemma4)
    }
}

fn tensor(model: &Path, name: &str) -> TensorInfo {
    terrace_ggml::gguf::read(model).unwrap().tensor(name).unwrap().clone()
}

/// Greedy tokens after these, with the bits of the logits after them and at the end.
fn run(options: Options, tokens: &[i32]) -> (exactness::Trace, Option<RowStats>) {
    let mut engine = Engine::load(options, &mut |_| ControlFlow::Continue(())).unwrap();
    let bits = |engine: &mut Engine| engine.logits().unwrap().iter().map(|logit| logit.to_bits()).collect();
    let mut session = engine.session();
    let mut generate = |engine: &mut Engine, tokens: &[i32], count| {
        let keep_going = &mut |_: &[u8]| ControlFlow::Continue(());
        engine.generate(&mut session, tokens, Some(count), &Sampling::greedy(), keep_going).unwrap().tokens
    };
    generate(&mut engine, tokens, 0);
    let after_prompt = bits(&mut engine);
    let generated = generate(&mut engine, &tokens[..1], 6);
    let at_end = bits(&mut engine);
    let trace = exactness::Trace { tokens: generated, after_prompt, at_end };
    (trace, engine.store_stats().map(|stats| stats.rows))
}

/// A model whose tokens look up rows that hashes of the last ones choose, from all over a table of more than 4 GiB: 64 rows of
/// 128 bytes for each hash, 280 MiB apart.
fn hashed() -> Spec {
    Spec {
        embd: 512,
        table_rows: 2_293_760 * Spec::HASHES,
        overrides: vec![(TABLE.into(), WeightType::F32)],
        ..Spec::new(Arch::Qwen4Exp)
    }
}

/// Rows at both ends of the table, some beyond 4 GiB, neighbours and repetitions.
#[test]
fn a_table_beyond_4_gib_is_exact() {
    let spec = large();
    let last = i32::try_from(spec.vocab).unwrap() - 1;
    let mut tokens: Vec<i32> = (0..40).map(|i| (i * i * 997) % last).collect();
    tokens.extend([300, 301, 302, 300, last, last - 1, last - 400, last, 39_999, 39_990, 300]);
    let rows = tokens.iter().map(|&token| u64::try_from(token).unwrap());
    let (stats, row) = table_is_exact(&spec, &tokens, rows);
    assert!(39_990 * row > 1 << 32, "tokens with rows beyond 4 GiB of the table");
    assert!(stats.distinct < stats.asked && stats.read >= 40, "{stats:?}");
    // Both tables' rows: none is read in more pieces than its bytes need, and little beside them.
    assert!(stats.bytes.bytes() * 10 <= stats.read * (row + 8192) * 13, "{stats:?}");
}

/// Each token asks for a row of each hash.
#[test]
fn a_table_of_hashed_tokens_beyond_4_gib_is_exact() {
    let spec = hashed();
    let tokens: Vec<i32> = (0..60).map(|i| 3 + (i * i * 31) % 310).collect();
    let of_a_hash = u64::from(spec.table_rows / Spec::HASHES);
    let all = (0..u64::from(Spec::HASHES))
        .flat_map(|hash| (0..u64::from(spec.hashed_rows)).map(move |row| hash * of_a_hash + row));
    let (stats, _) = table_is_exact(&spec, &tokens, all);
    assert!(stats.asked >= 60 * u64::from(Spec::HASHES), "{stats:?}");
    assert!(stats.distinct < stats.asked && stats.requests < stats.distinct, "{stats:?}");
    assert!(stats.requests <= u64::from(Spec::HASHES) * 3 + 60, "rows of a hash are neighbours: {stats:?}");
}

/// Checks greedy tokens after these with the model's table streamed, of which the `rows` are filled. Returns what was read of
/// tables, and the bytes of a row.
fn table_is_exact(spec: &Spec, tokens: &[i32], rows: impl Iterator<Item = u64>) -> (RowStats, u64) {
    terrace_testkit::needs_own_process();
    let dir = dir();
    let model = terrace_testkit::write(spec, dir.path().join("model.gguf")).unwrap();
    terrace_testkit::write_table_rows(spec, &model, rows).unwrap();
    let table = tensor(&model, TABLE);
    assert!(table.size() > ByteSize::gib(4), "{}", table.size());
    let on_disk = terrace_platform::file::stored_bytes(&model).unwrap();
    assert!(on_disk < 64 << 20, "the file takes {on_disk} bytes");

    // Must come first: once the Terrace device is registered, it takes the graphs.
    let options = exactness::options(&model);
    let (stock, _) = run(Options { mode: Mode::Stock { repack: false }, ..options.clone() }, tokens);
    // What a budget without limit keeps in memory has the table.
    let ram_budget = Budget::Bytes(ByteSize(2 * minimum(&model, Manage::All).bytes()));
    let memory = MemoryOptions { stream: Manage::All, ram_budget, ..options.memory.clone() };
    let (got, stats) = run(Options { memory, ..options }, tokens);
    assert!(got == stock, "{}", difference(&got, &stock));
    (stats.unwrap(), table.extent.len / table.shape.0[1])
}

/// A table of rows that are smaller than a block of the disk.
fn small(dir: &Path) -> (std::path::PathBuf, Options) {
    let spec = Spec { vocab: 8000, ..Spec::new(Arch::Qwen3Moe) };
    let model = terrace_testkit::write(&spec, dir.join("model.gguf")).unwrap();
    let options = reloading::options(&model, Manage::All);
    let memory = MemoryOptions { ram_budget: Budget::Bytes(minimum(&model, Manage::All)), ..options.memory };
    let context = ContextOptions { ctx: Some(1280), outputs: 16, ..options.context };
    (model, Options { memory, context, ..options })
}

/// Number of blocks of 4 KiB with rows of these tokens.
fn blocks(table: &TensorInfo, tokens: &[i32]) -> u64 {
    let row = table.extent.len / table.shape.0[1];
    let of = |token: &i32| {
        let from = table.extent.offset + u64::try_from(*token).unwrap() * row;
        from / 4096..=(from + row - 1) / 4096
    };
    tokens.iter().flat_map(of).collect::<BTreeSet<u64>>().len() as u64
}

#[test]
fn a_prompt_needs_no_more_requests_than_blocks_and_no_row_twice() {
    terrace_testkit::needs_own_process();
    let dir = dir();
    let (model, options) = small(dir.path());
    let mut engine = reloading::load(options);
    let tokens: Vec<i32> = (0..1043).map(|i| 3 + (i * i * 31) % 7900).collect();
    let table = tensor(&model, "token_embd.weight");
    let stats = |engine: &Engine| engine.store_stats().unwrap().rows;
    let keep_going = &mut |_: &[u8]| ControlFlow::Continue(());
    // The first graphs of a context may ask for more than they take.
    let mut session = engine.session();
    engine.generate(&mut session, &[7999], Some(0), &Sampling::greedy(), keep_going).unwrap();
    let mut session = engine.session();
    let before = stats(&engine);
    engine.generate(&mut session, &tokens, Some(0), &Sampling::greedy(), keep_going).unwrap();
    let prompt = stats(&engine);
    let requests = prompt.requests - before.requests;
    let distinct = tokens.iter().collect::<BTreeSet<_>>().len() as u64;
    assert!(prompt.asked - before.asked >= 1043 && prompt.read - before.read <= distinct, "{prompt:?}");
    // The graphs of a prompt follow one another, and each joins its own.
    let of_graphs: u64 = tokens.chunks(512).map(|graph| blocks(&table, graph)).sum();
    assert!(requests <= of_graphs, "{requests} requests, {of_graphs} blocks: {prompt:?}");
    assert_eq!(prompt.ahead - before.ahead, prompt.read - before.read, "all ids are inputs: {prompt:?}");
    // The same prompt again, and tokens of it: all of it is in RAM.
    let mut again = engine.session();
    engine.generate(&mut again, &tokens[1..], Some(0), &Sampling::greedy(), keep_going).unwrap();
    let cached = stats(&engine);
    assert_eq!((cached.requests, cached.read), (prompt.requests, prompt.read));
    assert!(cached.asked > prompt.asked && cached.cached() > prompt.cached());
}

/// A pass that checks drafts is one of a few tokens, whose ids are inputs: their rows are asked for
/// together, before it. So is that of a single token.
#[test]
fn rows_of_a_few_tokens_are_asked_for_together() {
    terrace_testkit::needs_own_process();
    let dir = dir();
    let (model, options) = small(dir.path());
    let mut engine = reloading::load(options);
    let table = tensor(&model, "token_embd.weight");
    let keep_going = &mut |_: &[u8]| ControlFlow::Continue(());
    let mut session = engine.session();
    engine.generate(&mut session, &[7999], Some(0), &Sampling::greedy(), keep_going).unwrap();
    let tokens: Vec<i32> = (0..65).map(|i| 3 + i * 103).collect();
    for width in [5, 4, 1] {
        for pass in tokens[..20].chunks(width) {
            let before = engine.store_stats().unwrap().rows;
            engine.generate(&mut session, pass, Some(0), &Sampling::greedy(), keep_going).unwrap();
            let stats = engine.store_stats().unwrap().rows;
            let requests = stats.requests - before.requests;
            assert_eq!(stats.asked - before.asked, width as u64, "{stats:?}");
            assert_eq!(stats.ahead - before.ahead, stats.read - before.read, "{stats:?}");
            assert!(requests <= blocks(&table, pass), "{requests} requests: {stats:?}");
            assert!(width == 5 || requests == 0, "read by the first passes: {stats:?}");
        }
    }
}

/// Rows of a table that was reloaded are the new ones.
#[test]
fn a_reloaded_table_has_no_old_rows() {
    terrace_testkit::needs_own_process();
    let dir = dir();
    let (model, options) = small(dir.path());
    let other = Spec { vocab: 8000, seed: 2, ..Spec::new(Arch::Qwen3Moe) };
    let donor = terrace_testkit::write(&other, dir.path().join("donor.gguf")).unwrap();
    let name = "token_embd.weight";
    let mut engine = reloading::load(options.clone());
    let old = reloading::trace(&mut engine);
    engine.swap(&[reloading::from_file(name, &donor)]).unwrap();
    let swapped = reloading::trace(&mut engine);
    assert!(swapped != old);
    drop(engine);

    // A file that has the other table from the start.
    let (from, to) = (tensor(&donor, name).extent, tensor(&model, name).extent);
    let mut bytes = fs::read(&model).unwrap();
    let part = |extent: terrace_model::Extent| extent.offset as usize..extent.end() as usize;
    bytes[part(to)].copy_from_slice(&fs::read(&donor).unwrap()[part(from)]);
    let mixed = dir.path().join("mixed.gguf");
    fs::write(&mixed, bytes).unwrap();
    let mut engine = reloading::load(Options { model: mixed, ..options });
    assert!(swapped == reloading::trace(&mut engine));
}
