//! The tensors of each architecture, with the names and shapes that llama.cpp's loader expects.

use crate::spec::{Arch, Spec};
use crate::tensor::{Class, Fill, Tensor, Tensors};

pub(crate) mod streams;

/// Sizes that follow from a spec by the architecture's rules.
pub(crate) struct Derived {
    /// Rotated dimensions of a head.
    pub rope: u32,
    /// `deepseek2`: rank of the compressed queries.
    pub q_rank: u32,
    /// `deepseek2`: rank of the compressed keys and values. ggml has device kernels for 512.
    pub kv_rank: u32,
    /// `deepseek2`: elements of a head's key that are not rotated.
    pub nope: u32,
    /// Delta net: elements of a state row.
    pub state: u32,
    /// Delta net: key heads.
    pub key_heads: u32,
    /// Delta net: value heads.
    pub value_heads: u32,
    /// Every `n`-th layer has full attention.
    pub full_every: u32,
    /// `gemma4`: head size of full-attention layers.
    pub full_head: u32,
}

/// The table of per-layer embeddings.
pub(crate) const TABLE: &str = "per_layer_token_embd.weight";

/// Width of the delta net's convolution.
pub(crate) const CONV: u32 = 4;

impl Derived {
    pub fn of(spec: &Spec) -> Self {
        let rope = match spec.arch {
            Arch::Qwen3Next | Arch::Qwen35Moe | Arch::Qwen4Exp | Arch::Glm4Moe => spec.head_dim / 2,
            Arch::Deepseek2 => 64,
            _ => spec.head_dim,
        };
        Self {
            rope,
            q_rank: spec.q_rank,
            kv_rank: 512,
            nope: spec.head_dim,
            state: 128,
            key_heads: spec.key_heads,
            value_heads: spec.value_heads,
            full_every: if spec.layers < 4 { 2 } else { 4 },
            full_head: spec.head_dim * 2,
        }
    }

    /// Returns whether the layer has full attention rather than a delta net or a window.
    pub fn full_attention(&self, layer: u32) -> bool {
        (layer + 1).is_multiple_of(self.full_every)
    }
}

/// Returns all tensors of the model, in file order.
pub(crate) fn tensors(spec: &Spec) -> Vec<Tensor> {
    let derived = Derived::of(spec);
    let mut out = Tensors::new(spec);
    let embedding = match spec.arch {
        // The graph multiplies embeddings by the root of their width.
        Arch::Gemma4 => 1.0 / (spec.embd as f32).sqrt(),
        _ => 1.0,
    };
    let table = [spec.embd, spec.vocab];
    out.add("token_embd.weight".into(), Class::Other, &table, Fill::Embedding { std: embedding });
    if spec.per_layer > 0 {
        let all = spec.per_layer * spec.layers;
        out.add(TABLE.into(), Class::Other, &[all, spec.vocab], Fill::Hole);
        out.matrix("per_layer_model_proj.weight".into(), Class::Other, &[spec.embd, all]);
        out.norm("per_layer_proj_norm.weight".into(), spec.per_layer);
    }
    if spec.arch == Arch::Qwen4Exp {
        streams::table(spec, &mut out);
    }
    if spec.arch == Arch::Gemma4 && (0..spec.layers).any(|l| derived.full_attention(l)) {
        out.add("rope_freqs.weight".into(), Class::Float, &[derived.full_head / 2], Fill::RopeFactors);
    }
    for layer in 0..spec.layers {
        let mut block = Block { spec, derived: &derived, layer, out: &mut out };
        match spec.arch {
            Arch::Qwen4Exp => block.streams(),
            _ => block.norm("attn_norm", spec.embd),
        }
        block.attention();
        block.feed_forward();
    }
    match spec.arch {
        Arch::Qwen4Exp => streams::output(spec, &mut out),
        _ => out.norm("output_norm.weight".into(), spec.embd),
    }
    let std = 4.0 / (spec.embd as f32).sqrt();
    out.add("output.weight".into(), Class::Other, &table, Fill::Output { std });
    out.list
}

struct Block<'a, 'b> {
    spec: &'a Spec,
    derived: &'a Derived,
    layer: u32,
    out: &'b mut Tensors<'a>,
}

impl Block<'_, '_> {
    fn name(&self, tensor: &str, suffix: &str) -> String {
        format!("blk.{}.{tensor}.{suffix}", self.layer)
    }

    fn norm(&mut self, tensor: &str, n: u32) {
        self.out.norm(self.name(tensor, "weight"), n);
    }

    fn matrix(&mut self, tensor: &str, class: Class, shape: &[u32]) {
        self.out.matrix(self.name(tensor, "weight"), class, shape);
    }

    fn residual(&mut self, tensor: &str, class: Class, shape: &[u32]) {
        self.out.residual(self.name(tensor, "weight"), class, shape);
    }

    fn bias(&mut self, tensor: &str, shape: &[u32]) {
        self.out.bias(self.name(tensor, "bias"), shape);
    }

    fn float(&mut self, name: String, shape: &[u32], fill: Fill) {
        self.out.add(name, Class::Float, shape, fill);
    }

    fn attention(&mut self) {
        let Spec { arch, embd, heads, kv_heads, head_dim, .. } = *self.spec;
        let full = self.derived.full_attention(self.layer);
        match arch {
            Arch::Deepseek2 => return self.latent_attention(),
            Arch::Qwen3Next | Arch::Qwen35Moe | Arch::Qwen4Exp if !full => return self.delta_net(),
            _ => {}
        }
        let head = if arch == Arch::Gemma4 && full { self.derived.full_head } else { head_dim };
        let (q, kv) = (heads * head, kv_heads * head);
        if arch == Arch::BailingMoe2 {
            self.matrix("attn_qkv", Class::Other, &[embd, q + 2 * kv]);
        } else {
            // Gated attention: the gate is interleaved with the query.
            let gated = matches!(arch, Arch::Qwen3Next | Arch::Qwen35Moe | Arch::Qwen4Exp);
            self.matrix("attn_q", Class::Other, &[embd, if gated { 2 * q } else { q }]);
            self.matrix("attn_k", Class::Other, &[embd, kv]);
            self.matrix("attn_v", Class::Other, &[embd, kv]);
        }
        if matches!(arch, Arch::Qwen2Moe | Arch::Glm4Moe | Arch::GptOss) {
            self.bias("attn_q", &[q]);
            self.bias("attn_k", &[kv]);
            self.bias("attn_v", &[kv]);
        }
        if !matches!(arch, Arch::Llama | Arch::Mixtral | Arch::Qwen2Moe | Arch::GptOss) {
            self.norm("attn_q_norm", head);
            self.norm("attn_k_norm", head);
        }
        if arch == Arch::Qwen4Exp {
            self.indexer();
        }
        self.residual("attn_output", Class::Other, &[q, embd]);
        if arch == Arch::GptOss {
            self.bias("attn_output", &[embd]);
            let sinks = self.name("attn_sinks", "weight");
            self.float(sinks, &[heads], Fill::Normal { mean: 0.0, std: 1.0 });
        }
    }

    fn latent_attention(&mut self) {
        let Spec { embd, heads, head_dim, .. } = *self.spec;
        let Derived { rope, q_rank, kv_rank, nope, .. } = *self.derived;
        self.matrix("attn_q_a", Class::Other, &[embd, q_rank]);
        self.norm("attn_q_a_norm", q_rank);
        self.matrix("attn_q_b", Class::Other, &[q_rank, heads * (nope + rope)]);
        self.matrix("attn_kv_a_mqa", Class::Other, &[embd, kv_rank + rope]);
        self.norm("attn_kv_a_norm", kv_rank);
        self.matrix("attn_k_b", Class::Other, &[nope, kv_rank, heads]);
        self.matrix("attn_v_b", Class::Other, &[kv_rank, head_dim, heads]);
        self.residual("attn_output", Class::Other, &[heads * head_dim, embd]);
    }

    fn delta_net(&mut self) {
        let embd = self.spec.embd;
        let Derived { state, key_heads, value_heads, .. } = *self.derived;
        let (key, value) = (state * key_heads, state * value_heads);
        self.matrix("attn_qkv", Class::Other, &[embd, 2 * key + value]);
        self.matrix("attn_gate", Class::Other, &[embd, value]);
        let conv = self.name("ssm_conv1d", "weight");
        self.float(conv, &[CONV, 2 * key + value], Fill::Normal { mean: 0.0, std: 0.5 });
        let dt = self.name("ssm_dt", "bias");
        self.float(dt, &[value_heads], Fill::Uniform { low: -3.0, high: 0.0 });
        // The decay is exp(a * softplus(...)): a must be negative.
        let a = format!("blk.{}.ssm_a", self.layer);
        self.float(a, &[value_heads], Fill::Uniform { low: -2.0, high: -0.2 });
        if self.spec.arch == Arch::Qwen3Next {
            self.matrix("ssm_ba", Class::Other, &[embd, 2 * value_heads]);
        } else {
            self.matrix("ssm_beta", Class::Other, &[embd, value_heads]);
            self.matrix("ssm_alpha", Class::Other, &[embd, value_heads]);
        }
        self.norm("ssm_norm", state);
        self.residual("ssm_out", Class::Other, &[value, embd]);
    }

    fn feed_forward(&mut self) {
        let Spec { arch, embd, ff, .. } = *self.spec;
        match arch {
            Arch::Qwen3Next | Arch::Qwen35Moe | Arch::Glm4Moe | Arch::GptOss => {
                self.norm("post_attention_norm", embd);
            }
            Arch::Gemma4 => {
                self.norm("post_attention_norm", embd);
                self.norm("ffn_norm", embd);
                self.norm("post_ffw_norm", embd);
                self.norm("post_ffw_norm_1", embd);
                self.norm("pre_ffw_norm_2", embd);
                self.norm("post_ffw_norm_2", embd);
                let scale = self.name("layer_output_scale", "weight");
                self.float(scale, &[1], Fill::Uniform { low: 0.8, high: 1.0 });
                if self.spec.per_layer > 0 {
                    self.matrix("inp_gate", Class::Other, &[embd, self.spec.per_layer]);
                    self.residual("proj", Class::Other, &[self.spec.per_layer, embd]);
                    self.norm("post_norm", embd);
                }
            }
            Arch::Qwen4Exp => {}
            _ => self.norm("ffn_norm", embd),
        }
        if !arch.is_moe() || self.layer < self.spec.leading_dense || arch == Arch::Gemma4 {
            self.gated_ffn("", ff);
        }
        if arch.is_moe() && self.layer >= self.spec.leading_dense {
            self.experts();
        }
        match arch {
            Arch::Qwen2Moe | Arch::Qwen3Next | Arch::Qwen35Moe | Arch::Qwen4Exp if self.has_experts() => {
                let gate = self.name("ffn_gate_inp_shexp", "weight");
                let std = 1.0 / (embd as f32).sqrt();
                self.float(gate, &[embd], Fill::Normal { mean: 0.0, std });
                self.gated_ffn("_shexp", ff);
            }
            Arch::Deepseek2 | Arch::Glm4Moe | Arch::BailingMoe2 if self.has_experts() => {
                self.gated_ffn("_shexp", self.spec.expert_ff);
            }
            _ => {}
        }
    }

    fn has_experts(&self) -> bool {
        self.layer >= self.spec.leading_dense
    }

    fn gated_ffn(&mut self, kind: &str, ff: u32) {
        let embd = self.spec.embd;
        self.matrix(&format!("ffn_gate{kind}"), Class::Other, &[embd, ff]);
        self.matrix(&format!("ffn_up{kind}"), Class::Other, &[embd, ff]);
        self.residual(&format!("ffn_down{kind}"), Class::Other, &[ff, embd]);
    }

    fn experts(&mut self) {
        let Spec { arch, embd, expert_ff, experts, .. } = *self.spec;
        let router = self.name("ffn_gate_inp", "weight");
        let std = 2.0 / (embd as f32).sqrt();
        self.float(router, &[embd, experts], Fill::Router { std });
        match arch {
            Arch::Gemma4 => {
                // Undoes the graph's division of the router's input by the root of its width.
                let scale = self.name("ffn_gate_inp", "scale");
                let mean = (embd as f32).sqrt();
                self.float(scale, &[embd], Fill::Normal { mean, std: 0.0 });
                let scale = self.name("ffn_down_exps", "scale");
                self.float(scale, &[experts], Fill::Uniform { low: 0.5, high: 1.5 });
            }
            Arch::GptOss => self.bias("ffn_gate_inp", &[experts]),
            Arch::Deepseek2 | Arch::Glm4Moe | Arch::BailingMoe2 => self.bias("exp_probs_b", &[experts]),
            _ => {}
        }
        if self.spec.fused_gate_up {
            self.matrix("ffn_gate_up_exps", Class::Expert, &[embd, 2 * expert_ff, experts]);
        } else {
            self.matrix("ffn_gate_exps", Class::Expert, &[embd, expert_ff, experts]);
            self.matrix("ffn_up_exps", Class::Expert, &[embd, expert_ff, experts]);
        }
        self.residual("ffn_down_exps", Class::ExpertDown, &[expert_ff, embd, experts]);
        if arch == Arch::GptOss {
            self.bias("ffn_gate_exps", &[expert_ff, experts]);
            self.bias("ffn_up_exps", &[expert_ff, experts]);
            self.bias("ffn_down_exps", &[embd, experts]);
        }
    }
}
