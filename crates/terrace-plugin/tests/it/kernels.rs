//! With `TERRACE_KERNELS=fast`, the plug-in computes attention and prompts' products of models that the host holds.

use crate::host::{bundled, load, places, plug_in, set, trace_with};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_ggml::llama::{CacheType, ContextParams, FlashAttention, Model};
use terrace_ggml::testing::params::context_params;
use terrace_kernels::Isa;
use terrace_testkit::{Arch, Spec, WeightType};

fn params(threads: usize, flash_attention: FlashAttention, cache: CacheType) -> ContextParams {
    let (k_type, v_type) = (cache, cache);
    ContextParams { threads, threads_batch: threads, flash_attention, k_type, v_type, ..context_params(512) }
}

fn with_threads(threads: usize) -> ContextParams {
    params(threads, FlashAttention::On, CacheType::F16)
}

/// The largest difference, as a share of the deviation of the logits.
fn largest_difference(got: &[u32], stock: &[u32]) -> f32 {
    let floats = |bits: &[u32]| bits.iter().map(|&bits| f32::from_bits(bits)).collect::<Vec<_>>();
    let (got, stock) = (floats(got), floats(stock));
    let mean = stock.iter().sum::<f32>() / stock.len() as f32;
    let variance = stock.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / stock.len() as f32;
    let largest = got.iter().zip(&stock).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    largest / variance.sqrt()
}

/// Logits of the prompt differ from the host's in their last bits, and do not depend on the number of threads.
fn check(model: &Arc<Model>, before: &[Vec<u32>]) {
    let got = trace_with(model, &with_threads(1));
    assert!(got[0] != before[0], "no kernel added in an order of its own");
    let difference = largest_difference(&got[0], &before[0]);
    assert!(difference < 0.1, "logits of the prompt differ by {difference}");
    assert!(trace_with(model, &with_threads(2)) == got, "results depend on the number of threads");
}

#[test]
fn models_of_the_host_have_fast_attention() {
    set("TERRACE_KERNELS", "fast");
    set("TERRACE_RAM_BUDGET", "1GiB");
    let before = (places(&load(&bundled(), false)), trace_with(&load(&bundled(), false), &with_threads(1)));
    plug_in();
    let model = load(&bundled(), false);
    assert_eq!(places(&model), before.0, "weights are where the host puts them");
    check(&model, &before.1);
}

#[test]
fn exact_kernels_leave_the_host_its_bits() {
    set("TERRACE_KERNELS", "exact");
    set("TERRACE_RAM_BUDGET", "1GiB");
    let before = trace_with(&load(&bundled(), false), &with_threads(1));
    plug_in();
    assert!(trace_with(&load(&bundled(), false), &with_threads(1)) == before);
}

/// llama.cpp tries who would compute attention, and leaves flash attention off, which quantised values need, if it
/// is not the device of the layer.
#[test]
fn flash_attention_stays_on_where_the_host_decides() {
    set("TERRACE_KERNELS", "fast");
    set("TERRACE_RAM_BUDGET", "1GiB");
    plug_in();
    let model = load(&bundled(), false);
    let auto = params(1, FlashAttention::Auto, CacheType::Q8_0);
    let on = ContextParams { flash_attention: FlashAttention::On, ..auto };
    assert!(trace_with(&model, &auto) == trace_with(&model, &on));
}

#[test]
fn streamed_models_have_fast_attention_too() {
    set("TERRACE_KERNELS", "fast");
    set("TERRACE_RAM_BUDGET", "3MiB");
    let before = trace_with(&load(&bundled(), false), &with_threads(1));
    plug_in();
    let model = load(&bundled(), false);
    assert!(places(&model).contains("TERRACE"), "{:?}", places(&model));
    check(&model, &before);
}

/// With VNNI, tiles multiply any number of tokens of these types with the same bits, and the host's kernels do not. Without,
/// few tokens are multiplied by dot products; nothing else depends on how many there are where the host's own bits do not:
/// attention over this cache has one order of sums in each program.
#[test]
fn prompts_are_multiplied_by_tiles() {
    set("TERRACE_KERNELS", "fast");
    set("TERRACE_RAM_BUDGET", "1GiB");
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let whole = params(1, FlashAttention::On, CacheType::Q8_0);
    let few = ContextParams { ubatch: 4, ..whole };
    let written = |ty: WeightType| {
        let spec = Spec { other_type: ty, ..Spec::new(Arch::Llama) };
        terrace_testkit::write(&spec, dir.path().join(ty.name())).unwrap()
    };
    let in_file_layout =
        |path: &Path| !places(&load(path, false)).iter().any(|place| place.contains("REPACK"));
    let one_order =
        |path: &Path| trace_with(&load(path, false), &few) == trace_with(&load(path, false), &whole);
    let any_number = Isa::best().has_vnni();
    let types = match any_number {
        true => vec![WeightType::IQ4_XS, WeightType::Q3_K],
        false => vec![WeightType::Q8_0, WeightType::Q6_K, WeightType::Q5_K, WeightType::Q2_K],
    };
    let suits = |path: &PathBuf| in_file_layout(path) && one_order(path) != any_number;
    let path = types.into_iter().map(written).find(suits);
    let path = path.expect("a type of which the host's bits depend on the pass, or do not");
    plug_in();
    let model = load(&path, false);
    let (few, whole) = (trace_with(&model, &few), trace_with(&model, &whole));
    assert_eq!(few[0] == whole[0], any_number, "no product was computed by tiles");
    let difference = largest_difference(&whole[0], &few[0]);
    assert!(difference < 0.1, "logits of the prompt differ by {difference}");
}
