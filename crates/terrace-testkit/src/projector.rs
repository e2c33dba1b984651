//! Projectors for models that exist: tiny vision encoders of several kinds.

use crate::error::Error;
use std::path::{Path, PathBuf};
use terrace_ggml::gguf::write::{Header, HeaderError};
use terrace_ggml::quantize::WeightType;
use terrace_model::Shape;

/// A kind of projector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectorKind {
    /// As LLaVA: images are scaled to one size, a position for each token.
    Mlp,
    /// As Gemma 3: the tokens of an image see each other in both directions.
    Gemma3,
    /// As Qwen2-VL: images in their own resolution, positions in three dimensions (M-RoPE).
    Qwen2Vl,
}

/// A projector to make. Its bytes depend only on this.
#[derive(Clone, Copy, Debug)]
pub struct ProjectorSpec {
    pub kind: ProjectorKind,
    /// Width of the model's embeddings.
    pub width: u64,
    /// Seed of the values.
    pub seed: u64,
}

/// Width, inner width, layers and heads of the encoder, and pixels of a side of a patch.
const EMBD: u64 = 64;
const FF: u64 = 96;
const LAYERS: u32 = 2;
const HEADS: u32 = 2;
const PATCH: u64 = 8;
/// Patches on a side of an image that is scaled to one size.
const SIDE: u64 = 8;

/// Tensors, as they are added.
struct Tensors<'a> {
    header: &'a mut Header,
    all: Vec<(usize, u64, bool)>,
}

impl Tensors<'_> {
    fn add(&mut self, name: &str, shape: [u64; 4]) -> Result<(), HeaderError> {
        let index = self.header.add_tensor(name, WeightType::F32, Shape(shape))?;
        // Scales of norms are near one.
        let scale = name.ends_with("weight") && shape[1] == 1;
        self.all.push((index, shape.iter().product(), scale));
        Ok(())
    }

    /// A matrix and a bias.
    fn linear(&mut self, name: &str, from: u64, to: u64) -> Result<(), HeaderError> {
        self.add(&format!("{name}.weight"), [from, to, 1, 1])?;
        self.add(&format!("{name}.bias"), [to, 1, 1, 1])
    }

    fn norm(&mut self, name: &str) -> Result<(), HeaderError> {
        self.add(&format!("{name}.weight"), [EMBD, 1, 1, 1])?;
        self.add(&format!("{name}.bias"), [EMBD, 1, 1, 1])
    }
}

/// Writes a projector to `path`, replacing an existing file, and returns the path.
///
/// # Errors
/// The file cannot be written.
pub fn write_projector(spec: &ProjectorSpec, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
    let path = path.as_ref().to_owned();
    let mut header = Header::new();
    describe(spec, &mut header).map_err(Error::header(&path))?;
    let mut tensors = Tensors { header: &mut header, all: Vec::new() };
    lay_out(spec, &mut tensors).map_err(Error::header(&path))?;
    let all = tensors.all;
    let mut bytes = header.to_bytes();
    let begin = bytes.len() as u64;
    let mut state = spec.seed.wrapping_mul(2).wrapping_add(1);
    for (index, length, scale) in all {
        let at = begin + header.tensor_offset(index);
        bytes.resize(usize::try_from(at).unwrap_or(usize::MAX), 0);
        for _ in 0..length {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let uniform = (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5;
            let value = if scale { 1.0 + 0.2 * uniform } else { 0.3 * uniform };
            bytes.extend(value.to_le_bytes());
        }
    }
    // The last tensor is padded, too.
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    std::fs::write(&path, bytes).map_err(Error::io(&path))?;
    Ok(path)
}

fn describe(spec: &ProjectorSpec, header: &mut Header) -> Result<(), HeaderError> {
    let kind = match spec.kind {
        ProjectorKind::Mlp => "mlp",
        ProjectorKind::Gemma3 => "gemma3",
        ProjectorKind::Qwen2Vl => "qwen2vl_merger",
    };
    header.set("general.architecture", "clip")?;
    header.set("general.name", format!("synthetic {kind}"))?;
    header.set("clip.has_vision_encoder", true)?;
    header.set("clip.projector_type", kind)?;
    header.set("clip.use_gelu", true)?;
    let sizes = [
        ("embedding_length", EMBD),
        ("feed_forward_length", FF),
        ("block_count", u64::from(LAYERS)),
        ("attention.head_count", u64::from(HEADS)),
        ("projection_dim", spec.width),
        ("image_size", SIDE * PATCH),
        ("patch_size", PATCH),
        ("projector.scale_factor", 2),
    ];
    for (key, size) in sizes {
        header.set(&format!("clip.vision.{key}"), u32::try_from(size).expect("small"))?;
    }
    header.set("clip.vision.attention.layer_norm_epsilon", 1e-6f32)?;
    header.set("clip.vision.image_mean", vec![0.5f32; 3])?;
    header.set("clip.vision.image_std", vec![0.5f32; 3])
}

fn lay_out(spec: &ProjectorSpec, tensors: &mut Tensors<'_>) -> Result<(), HeaderError> {
    let (kind, width) = (spec.kind, spec.width);
    tensors.add("v.patch_embd.weight", [PATCH, PATCH, 3, EMBD])?;
    match kind {
        ProjectorKind::Mlp => {
            tensors.add("v.class_embd", [EMBD, 1, 1, 1])?;
            tensors.add("v.position_embd.weight", [EMBD, SIDE * SIDE + 1, 1, 1])?;
            tensors.norm("v.pre_ln")?;
        }
        ProjectorKind::Gemma3 => {
            tensors.add("v.patch_embd.bias", [EMBD, 1, 1, 1])?;
            tensors.add("v.position_embd.weight", [EMBD, SIDE * SIDE, 1, 1])?;
        }
        ProjectorKind::Qwen2Vl => tensors.add("v.patch_embd.weight.1", [PATCH, PATCH, 3, EMBD])?,
    }
    for layer in 0..LAYERS {
        let name = |part: &str| format!("v.blk.{layer}.{part}");
        for part in ["attn_q", "attn_k", "attn_v", "attn_out"] {
            tensors.linear(&name(part), EMBD, EMBD)?;
        }
        tensors.norm(&name("ln1"))?;
        tensors.norm(&name("ln2"))?;
        tensors.linear(&name("ffn_up"), EMBD, FF)?;
        tensors.linear(&name("ffn_down"), FF, EMBD)?;
    }
    tensors.norm("v.post_ln")?;
    match kind {
        ProjectorKind::Mlp => {
            tensors.linear("mm.0", EMBD, width)?;
            tensors.linear("mm.2", width, width)
        }
        ProjectorKind::Gemma3 => {
            tensors.add("mm.input_projection.weight", [width, EMBD, 1, 1])?;
            tensors.add("mm.soft_emb_norm.weight", [EMBD, 1, 1, 1])
        }
        ProjectorKind::Qwen2Vl => {
            tensors.linear("mm.0", 4 * EMBD, 4 * EMBD)?;
            tensors.linear("mm.2", 4 * EMBD, width)
        }
    }
}
