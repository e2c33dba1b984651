//! Classes of tensors, and the summary that is counted from them.

use crate::models;
use crate::models::{Builder, F32, Q4_K, Q8_0};
use terrace_model::{ByteSize, LayerId, MetaValue};
use terrace_plan::model::{Count, Summary, TensorClass, classify, classify_all, expert_groups};

fn class_of(model: &terrace_model::ModelFile, name: &str) -> TensorClass {
    classify(model.tensor(name).unwrap_or_else(|| panic!("no {name}")), model)
}

#[test]
fn classes_by_role_and_shape() {
    use TensorClass::{
        Attention, DenseFfn, Expert, Norm, Other, Output, Router, SharedExpert, TokenEmbedding,
    };
    let deepseek = models::deepseek();
    for (name, class) in [
        ("token_embd.weight", TokenEmbedding),
        ("output.weight", Output),
        ("output_norm.weight", Norm),
        ("blk.3.attn_norm.weight", Norm),
        ("blk.3.attn_q.weight", Attention),
        ("blk.3.attn_k_b.weight", Attention),
        ("blk.0.ffn_up.weight", DenseFfn),
        ("blk.1.ffn_up_exps.weight", Expert),
        ("blk.1.ffn_up_shexp.weight", SharedExpert),
        ("blk.1.ffn_gate_inp.weight", Router),
        ("blk.1.exp_probs_b.bias", Router),
    ] {
        assert_eq!(class_of(&deepseek, name), class, "{name}");
    }
    let oss = models::gpt_oss();
    assert_eq!(class_of(&oss, "blk.5.ffn_up_exps.weight"), Expert);
    assert_eq!(class_of(&oss, "blk.5.ffn_up_exps.bias"), Other);
    assert_eq!(class_of(&oss, "blk.5.attn_sinks.weight"), Attention);
}

#[test]
fn tables_of_layers_are_known_by_role_and_shape() {
    use TensorClass::{Norm, Other, TokenEmbedding};
    let mut b = Builder::new("new");
    b.add("blk.1.engram_embd.weight", &[512, 1 << 20], Q8_0);
    b.add("blk.7.nextn.embed_tokens.weight", &[256, 32_000], Q4_K);
    b.add("engram_embd.weight", &[512, 1 << 20], Q8_0);
    b.add("per_layer_token_embd.weight", &[256, 65_536], Q4_K);
    // A product has as many columns as the hidden state, and few rows more.
    b.add("blk.1.engram_embd.bias", &[512, 1 << 20], F32);
    b.add("blk.2.engram_embd.weight", &[4096, 512], Q8_0);
    b.add("blk.3.engram_embd.weight", &[64, 4096, 4], Q8_0);
    b.add("blk.3.engram_embd_norm.weight", &[64, 4096], F32);
    assert_eq!(
        classify_all(&b.build()),
        [TokenEmbedding, TokenEmbedding, TokenEmbedding, TokenEmbedding, Other, Other, Other, Norm]
    );
}

#[test]
fn one_by_one_is_all_at_once() {
    for model in models::all() {
        let one_by_one: Vec<_> = model.tensors.iter().map(|t| classify(t, &model)).collect();
        assert_eq!(one_by_one, classify_all(&model), "{}", model.architecture());
    }
}

#[test]
fn experts_need_the_shape() {
    let mut b = Builder::new("new").meta("expert_count", 16).meta("expert_used_count", 2);
    b.add("blk.0.ffn_up_exps.weight", &[256, 64, 16], Q4_K);
    b.add("blk.0.ffn_up_chexps.weight", &[256, 64, 8], Q4_K);
    b.add("blk.0.ffn_gate_exps.weight", &[256, 64, 7], Q4_K);
    b.add("blk.0.ffn_down_exps.weight", &[256, 64], Q4_K);
    b.add("blk.0.ffn_down_exps.scale", &[16], F32);
    // A layer whose router has another size.
    b.add("blk.1.ffn_gate_inp.weight", &[256, 24], F32);
    b.add("blk.1.ffn_gate_up_exps.weight", &[256, 128, 24], Q8_0);
    let model = b.build();
    use TensorClass::{Expert, Other, Router};
    assert_eq!(classify_all(&model), [Expert, Expert, Other, Other, Other, Router, Expert]);
    let groups = expert_groups(&model);
    let shown: Vec<_> = groups.iter().map(|g| (g.layer, g.experts, g.roles.clone())).collect();
    assert_eq!(
        shown,
        [(LayerId(0), 8, vec![1]), (LayerId(0), 16, vec![0]), (LayerId(1), 24, vec![6])],
        "groups of other counts are their own"
    );
}

#[test]
fn a_count_beyond_reason_is_not_believed() {
    // A sparse file of a few bytes can claim this many; no memory holds a table of that length.
    let mut b = Builder::new("new").meta("expert_count", 1 << 31).meta("expert_used_count", 2);
    b.add("blk.0.ffn_up_exps.weight", &[1, 1, 1 << 31], F32);
    let model = b.build();
    assert_eq!(classify_all(&model), [TensorClass::Other]);
    assert!(expert_groups(&model).is_empty());
}

#[test]
fn bundles() {
    let groups = expert_groups(&models::qwen3_30b());
    assert_eq!(groups.len(), 48);
    let role = 2048 * 768 / 256 * 144;
    for (layer, group) in groups.iter().enumerate() {
        assert_eq!((group.layer, group.experts, group.roles.len()), (LayerId(layer as u32), 128, 3));
        assert_eq!(group.bundle, ByteSize(3 * role));
    }
    let deepseek = expert_groups(&models::deepseek());
    assert_eq!((deepseek.len(), deepseek[0].layer), (26, LayerId(1)), "the first layer is dense");
    assert!(expert_groups(&models::dense_70b()).is_empty());
}

#[test]
fn summary_counts() {
    let model = models::qwen3_30b();
    let summary = Summary::of(&model);
    assert_eq!(summary.architecture, "qwen3moe");
    assert_eq!((summary.n_layers, summary.n_embd, summary.n_vocab), (Some(48), Some(2048), Some(151_936)));
    assert_eq!((summary.n_head, summary.n_head_kv), (Some(Count::Same(32)), Some(Count::Same(4))));
    assert_eq!((summary.experts, summary.experts_used), (Some(Count::Same(128)), Some(Count::Same(8))));
    let bundle = 3 * 2048 * 768 / 256 * 144;
    assert_eq!(summary.bundle_bytes, Some(Count::Same(bundle)));
    assert_eq!(summary.token_cycle_bytes, ByteSize(48 * 8 * bundle));
    assert_eq!(summary.classes.iter().map(|c| c.bytes).sum::<ByteSize>(), model.size());
    assert_eq!(summary.types.iter().map(|t| t.bytes).sum::<ByteSize>(), model.size());
    assert_eq!(summary.classes.iter().map(|c| c.tensors).sum::<u64>(), model.tensors.len() as u64);
    assert_eq!(summary.types[0].ty, "q4_K");
    assert_eq!(summary.parameters, model.tensors.iter().map(|t| t.shape.elements()).sum::<u64>());

    let text = summary.to_string();
    for part in ["128 per layer, 8 used, in 48 layers", "experts", "q4_K", "model.gguf", "32, 4 for keys"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let json = serde_json::to_value(&summary).expect("plain data serialises");
    assert_eq!(json["experts"], 128);
    assert_eq!(json["classes"][0]["class"], "expert");
    assert_eq!(json["types"][0]["type"], "q4_K");
    assert_eq!(json["token_cycle_bytes"], 48 * 8 * bundle);
}

#[test]
fn top_k_per_layer() {
    let mut b = Builder::new("a").meta("expert_count", 4);
    for layer in 0..3 {
        b.add(format!("blk.{layer}.ffn_up_exps.weight"), &[256, 1, 4], Q4_K);
    }
    let mut model = b.build();
    // Without the number of used experts, all are counted as used.
    assert_eq!(Summary::of(&model).experts_used, Some(Count::Same(4)));
    let used = [1, 2, 9].map(MetaValue::U64).to_vec();
    model.metadata.insert("a.expert_used_count".into(), MetaValue::Array(used));
    let summary = Summary::of(&model);
    // As the file has it, although it is impossible; what is computed with is bounded.
    assert_eq!(summary.experts_used, Some(Count::Range { min: 1, max: 9 }));
    assert_eq!(summary.token_cycle_bytes, ByteSize((1 + 2 + 4) * 144));
    let json = serde_json::to_value(&summary).expect("plain data serialises");
    assert_eq!(json["experts_used"], serde_json::json!({"min": 1, "max": 9}));
}

#[test]
fn a_dense_model_says_nothing_of_experts() {
    let summary = Summary::of(&models::dense_70b());
    assert_eq!((summary.experts, summary.bundle_bytes, summary.moe_layers), (None, None, 0));
    assert_eq!(summary.token_cycle_bytes, ByteSize::ZERO);
    assert!(!summary.to_string().contains("expert"));
}
