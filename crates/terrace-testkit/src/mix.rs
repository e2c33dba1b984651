//! The mixes of types that models are published in.

use crate::spec::{Arch, Spec};
use std::str::FromStr;
use terrace_ggml::quantize::WeightType;

/// A mix, by the name of llama.cpp's quantiser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mix {
    /// Q4_K, with more bits where they matter.
    Q4KM,
    /// Q5_K, with more bits where they matter.
    Q5KM,
}

impl Mix {
    /// All mixes.
    pub const ALL: &[Self] = &[Self::Q4KM, Self::Q5KM];

    /// The name on this kit's command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Q4KM => "q4_k_m",
            Self::Q5KM => "q5_k_m",
        }
    }

    /// Sets the types of a spec to this mix, by the rules of llama.cpp's `llama-quant.cpp`: values
    /// of attention and down projections in Q6_K in the first and last eighth of the layers and in
    /// every third between; the output in Q6_K; with eight experts, keys and values in Q8_0. Models
    /// with MXFP4 experts keep these, with Q8_0 for the rest.
    pub fn apply(self, spec: Spec) -> Spec {
        if spec.arch == Arch::GptOss {
            return spec;
        }
        let ty = match self {
            Self::Q4KM => WeightType::Q4_K,
            Self::Q5KM => WeightType::Q5_K,
        };
        let mut spec = spec.with_type(ty);
        let mut types = vec![("output.weight".to_owned(), WeightType::Q6_K)];
        // Comes first, because the name of the attention's output contains that of the head.
        let attention_output = match self {
            Self::Q4KM if spec.experts == 8 => WeightType::Q5_K,
            _ => ty,
        };
        types.insert(0, ("attn_output.weight".into(), attention_output));
        if spec.experts == 8 {
            types.push(("attn_v.weight".into(), WeightType::Q8_0));
            types.push(("attn_k.weight".into(), WeightType::Q8_0));
        } else if spec.arch == Arch::Llama && spec.layers == 80 && self == Self::Q4KM {
            // Eight heads share a value, so a few more bits cost little.
            let rest = (0..spec.layers).filter(|&layer| !more_bits(layer, spec.layers));
            types.extend(rest.map(|layer| (format!("blk.{layer}.attn_v.weight"), WeightType::Q5_K)));
        }
        for layer in (0..spec.layers).filter(|&layer| more_bits(layer, spec.layers)) {
            types.push((format!("blk.{layer}.attn_v.weight"), WeightType::Q6_K));
            types.push((format!("blk.{layer}.ffn_down"), WeightType::Q6_K));
        }
        let fused = match self {
            Self::Q4KM => WeightType::Q5_K,
            Self::Q5KM => WeightType::Q6_K,
        };
        types.push(("attn_qkv.weight".into(), fused));
        spec.overrides = types;
        spec
    }
}

const fn more_bits(layer: u32, layers: u32) -> bool {
    layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Self::ALL.iter().map(|mix| mix.name()).collect::<Vec<_>>().join(", ");
        let found = Self::ALL.iter().copied().find(|mix| mix.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| format!("`{text}` is not one of {}", known()))
    }
}
