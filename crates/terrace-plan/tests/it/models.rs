//! Descriptions of models, equal to those read from their GGUF files, without the files.

use std::collections::BTreeMap;
use terrace_model::{Extent, FileIndex, MetaValue, ModelFile, Shape, Shard, TensorInfo, TensorType};

pub const F32: (u32, &str, u32, u32) = (0, "f32", 1, 4);
pub const Q8_0: (u32, &str, u32, u32) = (8, "q8_0", 32, 34);
pub const Q4_K: (u32, &str, u32, u32) = (12, "q4_K", 256, 144);
pub const Q6_K: (u32, &str, u32, u32) = (14, "q6_K", 256, 210);
pub const MXFP4: (u32, &str, u32, u32) = (39, "mxfp4", 32, 17);

/// Collects tensors at consecutive offsets, as in a file.
pub struct Builder {
    model: ModelFile,
    arch: &'static str,
    end: u64,
}

impl Builder {
    pub fn new(arch: &'static str) -> Self {
        let metadata = BTreeMap::from([("general.architecture".into(), MetaValue::Str(arch.into()))]);
        let model =
            ModelFile { shards: vec![], version: 3, alignment: 32, metadata, tensors: vec![], mtp: None };
        Self { model, arch, end: 4096 }
    }

    pub fn meta(mut self, key: &str, value: u64) -> Self {
        self.model.metadata.insert(format!("{}.{key}", self.arch), MetaValue::U64(value));
        self
    }

    pub fn add(&mut self, name: impl Into<String>, dims: &[u64], ty: (u32, &str, u32, u32)) {
        let mut shape = [1; 4];
        shape[..dims.len()].copy_from_slice(dims);
        let (id, type_name, block_elements, block_bytes) = ty;
        let len = Shape(shape).elements() / u64::from(block_elements) * u64::from(block_bytes);
        self.model.tensors.push(TensorInfo {
            name: name.into(),
            ty: TensorType { id, name: type_name.into(), block_elements, block_bytes },
            shape: Shape(shape),
            extent: Extent { file: FileIndex(0), offset: self.end, len },
        });
        self.end = (self.end + len).next_multiple_of(32);
    }

    fn attention(&mut self, layer: u64, embd: u64, kv: u64) {
        self.add(format!("blk.{layer}.attn_norm.weight"), &[embd], F32);
        self.add(format!("blk.{layer}.attn_q.weight"), &[embd, embd], Q4_K);
        self.add(format!("blk.{layer}.attn_k.weight"), &[embd, kv], Q4_K);
        self.add(format!("blk.{layer}.attn_v.weight"), &[embd, kv], Q6_K);
        self.add(format!("blk.{layer}.attn_output.weight"), &[embd, embd], Q4_K);
        self.add(format!("blk.{layer}.ffn_norm.weight"), &[embd], F32);
    }

    fn ffn(&mut self, layer: u64, suffix: &str, embd: u64, ff: u64) {
        self.add(format!("blk.{layer}.ffn_gate{suffix}.weight"), &[embd, ff], Q4_K);
        self.add(format!("blk.{layer}.ffn_up{suffix}.weight"), &[embd, ff], Q4_K);
        self.add(format!("blk.{layer}.ffn_down{suffix}.weight"), &[ff, embd], Q6_K);
    }

    fn experts(&mut self, layer: u64, embd: u64, ff: u64, experts: u64, ty: (u32, &str, u32, u32)) {
        self.add(format!("blk.{layer}.ffn_gate_inp.weight"), &[embd, experts], F32);
        self.add(format!("blk.{layer}.ffn_gate_exps.weight"), &[embd, ff, experts], ty);
        self.add(format!("blk.{layer}.ffn_up_exps.weight"), &[embd, ff, experts], ty);
        self.add(format!("blk.{layer}.ffn_down_exps.weight"), &[ff, embd, experts], ty);
    }

    fn ends(&mut self, embd: u64, vocab: u64) {
        self.add("token_embd.weight", &[embd, vocab], Q4_K);
        self.add("output_norm.weight", &[embd], F32);
        self.add("output.weight", &[embd, vocab], Q6_K);
    }

    pub fn build(mut self) -> ModelFile {
        self.model.shards.push(Shard { path: "model.gguf".into(), len: self.end, data_offset: 4096 });
        self.model
    }
}

/// 48 layers of 128 experts, 8 used; 1.6 M parameters per expert and role.
pub fn qwen3_30b() -> ModelFile {
    let mut b = Builder::new("qwen3moe")
        .meta("block_count", 48)
        .meta("embedding_length", 2048)
        .meta("attention.head_count", 32)
        .meta("attention.head_count_kv", 4)
        .meta("context_length", 40960)
        .meta("expert_count", 128)
        .meta("expert_used_count", 8);
    b.ends(2048, 151_936);
    for layer in 0..48 {
        b.attention(layer, 2048, 512);
        b.experts(layer, 2048, 768, 128, Q4_K);
    }
    b.build()
}

/// 32 layers of 8 large experts, 2 used.
pub fn mixtral() -> ModelFile {
    let mut b =
        Builder::new("llama").meta("block_count", 32).meta("expert_count", 8).meta("expert_used_count", 2);
    b.ends(4096, 32_000);
    for layer in 0..32 {
        b.attention(layer, 4096, 1024);
        b.experts(layer, 4096, 14336, 8, Q4_K);
    }
    b.build()
}

/// 80 dense layers.
pub fn dense_70b() -> ModelFile {
    let mut b = Builder::new("llama").meta("block_count", 80);
    b.ends(8192, 128_256);
    for layer in 0..80 {
        b.attention(layer, 8192, 1024);
        b.ffn(layer, "", 8192, 28672);
    }
    b.build()
}

/// 24 layers of 32 experts with biases, 4 used.
pub fn gpt_oss() -> ModelFile {
    let mut b =
        Builder::new("gpt-oss").meta("block_count", 24).meta("expert_count", 32).meta("expert_used_count", 4);
    b.ends(2816, 201_088);
    for layer in 0..24 {
        b.attention(layer, 2816, 512);
        b.add(format!("blk.{layer}.attn_q.bias"), &[2816], F32);
        b.add(format!("blk.{layer}.attn_sinks.weight"), &[64], F32);
        b.experts(layer, 2816, 2816, 32, MXFP4);
        b.add(format!("blk.{layer}.ffn_gate_inp.bias"), &[32], F32);
        for role in ["gate", "up", "down"] {
            b.add(format!("blk.{layer}.ffn_{role}_exps.bias"), &[2816, 32], F32);
        }
    }
    b.build()
}

/// 27 layers, the first dense, the others 64 experts (6 used) and two shared ones in one tensor.
pub fn deepseek() -> ModelFile {
    let mut b = Builder::new("deepseek2")
        .meta("block_count", 27)
        .meta("leading_dense_block_count", 1)
        .meta("expert_count", 64)
        .meta("expert_used_count", 6)
        .meta("expert_shared_count", 2);
    b.ends(2048, 102_400);
    for layer in 0..27 {
        b.attention(layer, 2048, 512);
        // There are as many heads as experts: three dimensions alone do not make an expert tensor.
        b.add(format!("blk.{layer}.attn_k_b.weight"), &[128, 512, 64], Q8_0);
        if layer == 0 {
            b.ffn(layer, "", 2048, 10944);
        } else {
            b.experts(layer, 2048, 1408, 64, Q8_0);
            b.add(format!("blk.{layer}.exp_probs_b.bias"), &[64], F32);
            b.ffn(layer, "_shexp", 2048, 2816);
        }
    }
    b.build()
}

pub fn all() -> Vec<ModelFile> {
    vec![qwen3_30b(), mixtral(), dense_70b(), gpt_oss(), deepseek()]
}
