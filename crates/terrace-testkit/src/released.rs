//! Tiny models of all architectures that the pinned llama.cpp knows.
//!
//! llama.cpp itself says which tensors a model has: it creates them from metadata alone. So nothing
//! here has to know an architecture's tensors, and those of a later release join by themselves. The
//! metadata hold what any architecture asks for (the keys and shapes of llama.cpp's own test of
//! all architectures, `test-llama-archs`). All weights are F32; `terrace-quantize` makes others of
//! them.

use crate::error::Error;
use crate::mtp::{Mtp, MtpReads};
use crate::values::values;
use crate::vocab::Vocabulary;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use terrace_ggml::gguf::write::{Header, HeaderError, Value};
use terrace_ggml::quantize::WeightType;
use terrace_ggml::testing::architectures::{self, Shapes, ShapesError};
use terrace_model::{ModelFile, Shape, split_layer};

/// Layers, unless an architecture is compiled for a minimum.
const LAYERS: u32 = 2;
/// Experts of a layer, and those that a token uses.
const EXPERTS: (u32, u32) = (4, 2);
/// Tokens of the vocabulary.
const VOCABULARY: u32 = 384;
/// Context in the metadata.
const CONTEXT: u32 = 128;

/// Returns the architectures of the release, by the names in `general.architecture`.
///
/// # Panics
/// If llama.cpp throws.
pub fn architectures() -> Vec<String> {
    architectures::architectures().expect("a list of constants")
}

/// A model of one architecture.
#[derive(Clone, Debug)]
pub struct Released {
    arch: String,
    shapes: Shapes,
    metadata: Vec<(String, Value)>,
    /// The layers that predict further tokens, if there are such.
    mtp: Option<Mtp>,
}

impl Released {
    /// Asks llama.cpp for the tensors of this architecture; with experts, if `moe` and if the
    /// architecture has such.
    ///
    /// # Errors
    /// llama.cpp makes no model of these metadata.
    pub fn new(arch: &str, moe: bool) -> Result<Self, ShapesError> {
        Self::made(arch, moe, 0, MtpReads::Token)
    }

    /// As [`Released::new`], with `layers` more that predict the tokens after the next one, and are often
    /// right: the model says mostly what follows from the last token alone.
    ///
    /// # Errors
    /// As [`Released::new`].
    pub fn with_mtp(arch: &str, moe: bool, layers: u32, reads: MtpReads) -> Result<Self, ShapesError> {
        Self::made(arch, moe, layers, reads)
    }

    fn made(arch: &str, moe: bool, mtp: u32, reads: MtpReads) -> Result<Self, ShapesError> {
        let metadata = metadata(arch, moe, mtp);
        let mut header = header(&metadata).expect("keys and values without zeros");
        for (name, shape) in sized_by_files(arch) {
            header.add_tensor(&name, WeightType::F16, shape).expect("a shape of whole rows");
        }
        let mut shapes = architectures::shapes(&header)?;
        let first = layers(arch);
        // llama.cpp does not count the scales of matrices that it leaves out, and so refuses files that
        // have them.
        let is_mtp =
            |name: &str| split_layer(name).is_some_and(|(n, _)| n.parse().is_ok_and(|n: u32| n >= first));
        shapes.retain(|name, _| mtp == 0 || !is_mtp(name) || !name.ends_with("scale"));
        Ok(Self { arch: arch.to_owned(), shapes, metadata, mtp: (mtp > 0).then_some(Mtp { first, reads }) })
    }

    /// Returns whether any of its tensors holds experts.
    pub fn has_experts(&self) -> bool {
        self.shapes.keys().any(|name| name.contains("_exps."))
    }

    /// Names of its matrices, in alphabetic order.
    pub fn matrices(&self) -> impl Iterator<Item = &str> {
        let matrix = |(name, shape): &(&String, &Shape)| shape.0[1] > 1 && name.ends_with(".weight");
        self.shapes.iter().filter(matrix).map(|(name, _)| name.as_str())
    }

    /// Writes the model. The values of each tensor depend on its name and the seed, which is that of
    /// `other` for the tensor of this name.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path, seed: u64, other: Option<(&str, u64)>) -> Result<(), Error> {
        let mut header = header(&self.metadata).map_err(Error::header(path))?;
        for (name, shape) in &self.shapes {
            header.add_tensor(name, WeightType::F32, *shape).map_err(Error::header(path))?;
        }
        let mut out = BufWriter::new(File::create(path).map_err(Error::io(path))?);
        let mut write = |bytes: &[u8]| out.write_all(bytes).map_err(Error::io(path));
        write(&header.to_bytes())?;
        let mut at = 0;
        for (index, (name, shape)) in self.shapes.iter().enumerate() {
            write(&vec![0; (header.tensor_offset(index) - at) as usize])?;
            let seed = other.filter(|(other, _)| other == name).map_or(seed, |(_, seed)| seed);
            let bytes: Vec<u8> =
                self.values_of(name, shape, seed).iter().flat_map(|value| value.to_le_bytes()).collect();
            write(&bytes)?;
            at = header.tensor_offset(index) + bytes.len() as u64;
        }
        write(&vec![0; (at.next_multiple_of(header.alignment()) - at) as usize])?;
        out.flush().map_err(Error::io(path))
    }

    fn values_of(&self, name: &str, shape: &Shape, seed: u64) -> Vec<f32> {
        match &self.mtp {
            Some(mtp) => mtp.values(&self.shapes, name, shape, seed),
            None => values(name, shape, seed),
        }
    }

    /// The architecture.
    pub fn arch(&self) -> &str {
        &self.arch
    }
}

fn header(metadata: &[(String, Value)]) -> Result<Header, HeaderError> {
    let mut header = Header::new();
    for (key, value) in metadata {
        header.set(key, value.clone())?;
    }
    Vocabulary::of(VOCABULARY).describe(&mut header)?;
    Ok(header)
}

/// Tensors whose types llama.cpp reads from the file before it creates them.
fn sized_by_files(arch: &str) -> Vec<(String, Shape)> {
    let row = Shape([1, 1, 1, 1]);
    let layers = (0..layers(arch)).flat_map(|layer| {
        [
            format!("conv{layer}d.weight"),
            format!("posnet.{layer}.conv1.weight"),
            format!("posnet.{layer}.conv2.weight"),
            format!("convnext.{layer}.dw.weight"),
        ]
    });
    layers.map(|name| (name, row)).collect()
}

fn layers(arch: &str) -> u32 {
    match arch {
        // `n_no_rope_layer_step` is 4.
        "llama4" => 4,
        // Every fifth layer attends to everything.
        "gemma4" => 5,
        // `n_layer_kv_from_start` is 20.
        "gemma3n" => 22,
        "nemotron_h" | "nemotron_h_moe" => 3,
        _ => LAYERS,
    }
}

/// Latent attention has heads of fixed sizes.
fn is_latent(arch: &str) -> bool {
    const LATENT: [&str; 10] = [
        "bailingmoe3",
        "deepseek2",
        "deepseek32",
        "dots3note",
        "glm-dsa",
        "glm5-next",
        "hy_v4",
        "kimi-k3",
        "kimi-linear",
        "mistral4",
    ];
    LATENT.contains(&arch)
}

fn metadata(arch: &str, moe: bool, mtp: u32) -> Vec<(String, Value)> {
    let layers = layers(arch) + mtp;
    let (embd, heads, ff): (u32, u32, u32) = match arch {
        "gemma3n" => (64, 1, 96),
        _ if is_latent(arch) => (256, 1, 256),
        _ => (256, 2, 512),
    };
    let head = embd / heads;
    let mut all: Vec<(String, Value)> = vec![("general.architecture".into(), arch.into())];
    let mut set = |key: &str, value: Value| all.push((format!("{arch}.{key}"), value));
    set("vocab_size", VOCABULARY.into());
    set("context_length", CONTEXT.into());
    set("embedding_length", embd.into());
    set("features_length", embd.into());
    set("block_count", layers.into());
    if mtp > 0 {
        set(ModelFile::MTP_LAYERS, mtp.into());
    }
    set("leading_dense_block_count", 1u32.into());
    // Nemotron has layers of one kind each: attention, recurrence, FFN.
    match arch {
        "nemotron_h" | "nemotron_h_moe" => {
            let widths: Vec<u32> = (0..layers).map(|layer| if layer <= 1 { 0 } else { ff }).collect();
            set("feed_forward_length", widths.into());
        }
        _ => set("feed_forward_length", ff.into()),
    }
    match arch {
        // The second layer is recurrent.
        "plamo2" | "jamba" | "nemotron_h" | "nemotron_h_moe" | "granitehybrid" | "lfm2" | "lfm2moe"
        | "kimi-linear" | "kimi-k3" | "bailingmoe3" => {
            let heads: Vec<u32> = (0..layers).map(|layer| if layer == 1 { 0 } else { heads }).collect();
            set("attention.head_count", heads.clone().into());
            set("attention.head_count_kv", heads.into());
        }
        _ => {
            set("attention.head_count", heads.into());
            set("attention.head_count_kv", heads.into());
        }
    }
    if is_latent(arch) {
        set("attention.key_length", 576u32.into());
        set("attention.value_length", 512u32.into());
        // GLM 5 has no positions in these.
        set("rope.dimension_count", if arch == "glm5-next" { 0u32 } else { 64 }.into());
        set("attention.key_length_mla", 192u32.into());
        set("attention.value_length_mla", 128u32.into());
    }
    match arch {
        "gemma4" => {
            set("embedding_length_per_layer_input", (embd / 2).into());
            set("attention.shared_kv_layers", 0u32.into());
            set("attention.key_length_swa", head.into());
            set("attention.value_length_swa", head.into());
            set("rope.freq_base_swa", 10_000f32.into());
            let windows: Vec<bool> = (0..layers).map(|layer| layer != 4).collect();
            set("attention.sliding_window_pattern", windows.into());
        }
        "cohere2moe" | "dots3note" | "granite_swa" | "maple" | "mimo2" | "spark2_5" | "step35" => {
            let windows: Vec<u32> = (0..layers).map(|layer| layer % 2).collect();
            set("attention.sliding_window_pattern", windows.into());
        }
        _ => set("attention.sliding_window_pattern", 2u32.into()),
    }
    // It takes experts' widths for its own.
    if moe && arch != "nemotron_h" {
        set("expert_feed_forward_length", ff.into());
        set("interleave_moe_layer_step", 2u32.into());
        set("expert_count", EXPERTS.0.into());
        set("expert_used_count", EXPERTS.1.into());
        set("expert_shared_count", 1u32.into());
        set("expert_shared_feed_forward_length", ff.into());
        // The sigmoid; DeepSeek V4 knows only the root of the softplus.
        set("expert_gating_func", if arch == "deepseek4" { 4u32 } else { 2 }.into());
        set("expert_group_scale", 1f32.into());
        set("experts_per_group", 1u32.into());
    }
    let inner = if arch.starts_with("qwen") { 256 } else { 2 * embd };
    set("ssm.inner_size", inner.into());
    set("ssm.group_count", if arch == "plamo2" { 0u32 } else { 2 }.into());
    for (key, value) in [
        ("use_parallel_residual", Value::from(false)),
        ("residual_scale", 1f32.into()),
        ("expert_weights_scale", 1f32.into()),
        ("expert_weights_norm", true.into()),
        ("swiglu_clamp_exp", 7f32.into()),
        ("attention.decay_lora_rank", 32u32.into()),
        ("attention.iclr_lora_rank", 32u32.into()),
        ("attention.value_residual_mix_lora_rank", 32u32.into()),
        ("attention.gate_lora_rank", 32u32.into()),
        ("attention.output_group_count", 2u32.into()),
        ("attention.output_lora_rank", 32u32.into()),
        ("attention.compress_rope_freq_base", 10_000f32.into()),
        ("attention.compress_ratios", vec![4u32; layers as usize].into()),
        ("attention.indexer.block_size", 4u32.into()),
        ("attention.indexer.local_blocks", 1u32.into()),
        ("attention.indexer.kpool", 2u32.into()),
        ("attention.indexer.types", vec![true; (layers - mtp) as usize].into()),
        ("attention.kv_lora_rank_swa", 512u32.into()),
        ("attention.key_length_mla_swa", 192u32.into()),
        ("attention.value_length_mla_swa", 128u32.into()),
        ("rope.freq_base_swa", 10_000f32.into()),
        ("hyper_connection.count", 4u32.into()),
        ("hyper_connection.low_rank", 32u32.into()),
        ("hyper_connection.epsilon", 1e-5f32.into()),
        ("hyper_connection.magnitude", 1f32.into()),
        ("hyper_connection.sinkhorn_iterations", 4u32.into()),
        ("hash_layer_count", 0u32.into()),
        ("kda.gate_lower_bound", (-5f32).into()),
        ("attn_res.block_size", 2u32.into()),
        ("activation.situ_beta", 1f32.into()),
        ("activation.situ_linear_beta", 1f32.into()),
        ("hrm.layers_per_stack", 1u32.into()),
        ("hrm.h_cycles", 1u32.into()),
        ("hrm.l_cycles", 1u32.into()),
        ("logit_scale", 1f32.into()),
        ("time_mix_extra_dim", 64u32.into()),
        ("time_decay_extra_dim", 128u32.into()),
        ("full_attention_interval", 2u32.into()),
        ("attention.max_alibi_bias", 8f32.into()),
        ("attention.clamp_kqv", 1f32.into()),
        ("attention.layer_norm_epsilon", 1e-5f32.into()),
        ("attention.layer_norm_rms_epsilon", 1e-5f32.into()),
        ("attention.group_norm_epsilon", 1e-5f32.into()),
        ("attention.group_norm_groups", 8u32.into()),
        ("attention.q_lora_rank", 512u32.into()),
        ("attention.kv_lora_rank", 512u32.into()),
        ("attention.relative_buckets_count", 8u32.into()),
        ("attention.sliding_window", (CONTEXT / 8).into()),
        ("attention.indexer.head_count", if arch == "minimax-m3" { heads } else { 1 }.into()),
        ("token_shift_count", if matches!(arch, "arwkv7" | "rwkv6qwen2") { 1u32 } else { 2 }.into()),
        (
            "attention.indexer.key_length",
            if matches!(arch, "hy_v4" | "minimax-m3" | "qwen4exp") { 128u32 } else { 64 }.into(),
        ),
        ("attention.indexer.top_k", 8u32.into()),
        ("rope.dimension_sections", vec![if is_latent(arch) { 16 } else { head / 4 }; 4].into()),
        ("posnet.embedding_length", embd.into()),
        ("posnet.block_count", layers.into()),
        ("convnext.embedding_length", embd.into()),
        ("convnext.block_count", layers.into()),
        ("ssm.conv_kernel", 4u32.into()),
        ("ssm.state_size", 128u32.into()),
        ("ssm.time_step_rank", heads.into()),
        ("kda.head_dim", 128u32.into()),
        ("wkv.head_size", head.into()),
        ("shortconv.l_cache", 3u32.into()),
    ] {
        set(key, value);
    }
    // llama.cpp has no graph of these layers with positions in several dimensions.
    if arch == "glm4moe" && mtp > 0 {
        all.retain(|(key, _)| !key.ends_with("rope.dimension_sections"));
    }
    for (key, value) in [("alpha_n", 1f32), ("alpha_p", 1.0), ("beta", 1.0), ("eps", 1e-7)] {
        all.push((format!("xielu.{key}"), value.into()));
    }
    all.push(("tokenizer.ggml.token_type_count".into(), 1u32.into()));
    all
}
