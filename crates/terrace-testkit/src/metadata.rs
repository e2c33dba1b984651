//! The metadata of each architecture.

use crate::layout::{CONV, Derived, streams};
use crate::spec::{Arch, Spec};
use crate::vocab::Vocabulary;
use terrace_ggml::gguf::write::{Header, HeaderError, Value};

/// Sets everything except the keys of split files.
pub(crate) fn describe(spec: &Spec, header: &mut Header) -> Result<(), HeaderError> {
    let arch = spec.arch.gguf_name();
    header.set("general.architecture", arch)?;
    header.set("general.name", format!("synthetic {}", spec.arch))?;
    header.set("general.quantization_version", 2u32)?;
    for (key, value) in hyperparameters(spec) {
        header.set(&format!("{arch}.{key}"), value)?;
    }
    Vocabulary::of(spec.vocab).describe(header)
}

fn hyperparameters(spec: &Spec) -> Vec<(&'static str, Value)> {
    let derived = Derived::of(spec);
    let latent = spec.arch == Arch::Deepseek2;
    let full_head = if spec.arch == Arch::Gemma4 { derived.full_head } else { spec.head_dim };
    let (key, value) =
        if latent { (derived.kv_rank + derived.rope, derived.kv_rank) } else { (full_head, full_head) };
    let ff = if spec.arch == Arch::Mixtral { spec.expert_ff } else { spec.ff };
    let rope = if spec.arch == Arch::Gemma4 { full_head } else { derived.rope };
    let mut all: Vec<(&'static str, Value)> = vec![
        ("vocab_size", spec.vocab.into()),
        ("context_length", spec.context.into()),
        ("embedding_length", spec.embd.into()),
        ("block_count", spec.layers.into()),
        ("feed_forward_length", ff.into()),
        ("attention.head_count", spec.heads.into()),
        ("attention.head_count_kv", if latent { 1u32 } else { spec.kv_heads }.into()),
        ("attention.key_length", key.into()),
        ("attention.value_length", value.into()),
        ("attention.layer_norm_rms_epsilon", 1e-6f32.into()),
        ("rope.dimension_count", rope.into()),
        ("rope.freq_base", 10_000f32.into()),
    ];
    if spec.arch.is_moe() {
        all.push(("expert_count", spec.experts.into()));
        all.push(("expert_used_count", spec.top_k.into()));
        if spec.arch != Arch::Mixtral {
            all.push(("expert_feed_forward_length", spec.expert_ff.into()));
        }
    }
    all.extend(of_architecture(spec, &derived));
    all
}

/// Returns the hyperparameters that only this architecture has.
fn of_architecture(spec: &Spec, derived: &Derived) -> Vec<(&'static str, Value)> {
    let mut all: Vec<(&'static str, Value)> = Vec::new();
    match spec.arch {
        Arch::Llama | Arch::Mixtral | Arch::Qwen3Moe => {}
        Arch::Qwen2Moe => all.push(("expert_shared_feed_forward_length", spec.ff.into())),
        Arch::Qwen3Next | Arch::Qwen35Moe | Arch::Qwen4Exp => {
            all.extend([
                ("expert_shared_feed_forward_length", Value::from(spec.ff)),
                ("full_attention_interval", derived.full_every.into()),
                ("ssm.conv_kernel", CONV.into()),
                ("ssm.inner_size", (derived.state * derived.value_heads).into()),
                ("ssm.state_size", derived.state.into()),
                ("ssm.time_step_rank", derived.value_heads.into()),
                ("ssm.group_count", derived.key_heads.into()),
            ]);
            if spec.arch == Arch::Qwen4Exp {
                all.extend(streams::hyperparameters(spec));
            }
            if spec.arch != Arch::Qwen3Next {
                let half = derived.rope / 2;
                let (height, width) = (half / 3, half / 3);
                let sections = vec![half - height - width, height, width, 0];
                all.push(("rope.dimension_sections", sections.into()));
            }
        }
        Arch::Gemma4 => {
            let windows: Vec<bool> = (0..spec.layers).map(|l| !derived.full_attention(l)).collect();
            all.extend([
                ("attention.sliding_window", Value::from(64u32)),
                ("attention.sliding_window_pattern", windows.into()),
                ("attention.key_length_swa", spec.head_dim.into()),
                ("attention.value_length_swa", spec.head_dim.into()),
                ("attention.shared_kv_layers", 0u32.into()),
                ("embedding_length_per_layer_input", spec.per_layer.into()),
                ("rope.dimension_count_swa", spec.head_dim.into()),
                ("rope.freq_base_swa", 10_000f32.into()),
                ("final_logit_softcapping", 30f32.into()),
            ]);
        }
        Arch::Deepseek2 => {
            all.extend([
                ("attention.q_lora_rank", Value::from(derived.q_rank)),
                ("attention.kv_lora_rank", derived.kv_rank.into()),
                ("attention.key_length_mla", (derived.nope + derived.rope).into()),
                ("attention.value_length_mla", spec.head_dim.into()),
            ]);
            all.extend(sigmoid_routing(spec));
        }
        Arch::Glm4Moe => all.extend(sigmoid_routing(spec)),
        Arch::BailingMoe2 => {
            all.push(("expert_shared_feed_forward_length", spec.expert_ff.into()));
            all.extend(sigmoid_routing(spec));
        }
        Arch::GptOss => all.push(("attention.sliding_window", 64u32.into())),
    }
    all
}

fn sigmoid_routing(spec: &Spec) -> Vec<(&'static str, Value)> {
    let mut all = vec![
        ("leading_dense_block_count", Value::from(spec.leading_dense)),
        ("expert_shared_count", 1u32.into()),
        ("expert_gating_func", 2u32.into()),
        ("expert_weights_norm", true.into()),
        ("expert_weights_scale", 1.5f32.into()),
    ];
    if spec.groups() > 1 {
        all.push(("expert_group_count", spec.groups().into()));
        all.push(("expert_group_used_count", (spec.groups() / 2).into()));
    }
    all
}
