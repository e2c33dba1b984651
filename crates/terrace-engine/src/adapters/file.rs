//! An adapter's file, compared with the model's header before llama.cpp sees it: llama.cpp compares two
//! dimensions of tensors that may have three, and asserts the rest while it computes.

use crate::error::EngineError;
use crate::file_error::{FileError, FileRole};
use crate::options::AdapterOption;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use terrace_ggml::cpu::default_threads;
use terrace_ggml::quantize::damage::{self, Fault};
use terrace_ggml::{DataType, gguf};
use terrace_model::identity::{FileFingerprint, FileIdentity};
use terrace_model::{ByteSize, MetaValue, ModelFile, Shape, TensorInfo, printable};
use terrace_store::identity::{file_fingerprint, file_identity, file_state};

/// Facts about an adapter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AdapterFacts {
    #[serde(serialize_with = "terrace_model::path_text::serialize")]
    pub path: PathBuf,
    /// RAM that it takes.
    pub bytes: ByteSize,
    /// Scale where nothing else is requested.
    pub scale: f32,
    /// Its task, and the beginning of prompts for it, if the file states them.
    pub task: String,
    /// See [`AdapterFacts::task`].
    pub prompt_prefix: String,
}

/// The file of an adapter that fits a model.
#[derive(Clone, Debug)]
pub struct AdapterFile {
    pub facts: AdapterFacts,
    /// Its bytes, and the CRC-32 of its header; `None` if the system does not say.
    pub identity: Option<(FileFingerprint, u32)>,
}

impl AdapterFile {
    /// Reads an adapter, and compares its header with the model.
    ///
    /// # Errors
    /// [`EngineError::Gguf`]; [`EngineError::File`] if it is no adapter, not one of this model, or has
    /// weights that are not finite.
    pub fn read(option: &AdapterOption, model: &ModelFile) -> Result<Self, EngineError> {
        let AdapterOption { path, scale } = option;
        let file = gguf::read(path)?;
        let refuse = |reason| FileError { role: FileRole::Adapter, path: path.clone(), reason };
        check(&file, model).map_err(refuse)?;
        check_weights(&file).map_err(refuse)?;
        let text = |key: &str| file.str(key).unwrap_or_default().to_owned();
        let facts = AdapterFacts {
            path: path.clone(),
            bytes: file.size(),
            scale: *scale,
            task: text("adapter.lora.task_name"),
            prompt_prefix: text("adapter.lora.prompt_prefix"),
        };
        let identity = || {
            let fingerprint = file_fingerprint(path, &file_state(path).ok()?).ok()?;
            let FileIdentity { header, .. } = file_identity(&file).ok()?;
            Some((fingerprint, header))
        };
        Ok(Self { facts, identity: identity() })
    }
}

/// Reads the adapter's weights, which are few beside the model's: one that is not finite makes every
/// token garbage. The error is the reason why the adapter cannot be used.
fn check_weights(file: &ModelFile) -> Result<(), String> {
    let checked = damage::check(file, default_threads(), &mut |_| ControlFlow::Continue(()));
    let checked = checked.map_err(|error| error.to_string())?;
    // Factors may be zero: that adds nothing.
    match checked.damage.into_iter().find(|damage| damage.fault != Fault::Zero) {
        Some(damage) => Err(format!("{damage}")),
        None => Ok(()),
    }
}

/// The two factors of what is added to the products of one weight.
#[derive(Default)]
struct Factors<'a> {
    a: Option<&'a TensorInfo>,
    b: Option<&'a TensorInfo>,
}

/// Checks that an adapter is one of the model. The error is the reason why not.
fn check(file: &ModelFile, model: &ModelFile) -> Result<(), String> {
    let told = |key: &str| printable(file.str(key).unwrap_or("nothing"));
    if file.str("general.type") != Some("adapter") {
        return Err(format!("is not an adapter (general.type is {})", told("general.type")));
    }
    if file.str("adapter.type") != Some("lora") {
        return Err(format!("is not a LoRA adapter (adapter.type is {})", told("adapter.type")));
    }
    if file.architecture() != model.architecture() {
        let (theirs, ours) = (printable(file.architecture()), model.architecture());
        return Err(format!("is for models of architecture {theirs}, and the model is {ours}"));
    }
    if file.metadata.contains_key("adapter.alora.invocation_tokens") {
        return Err(
            "is an activated adapter (aLoRA), which begins within a prompt: that is not supported".into()
        );
    }
    if file.shards.len() > 1 {
        return Err("is split into several files, which llama.cpp does not read".into());
    }
    match file.metadata.get("adapter.lora.alpha") {
        None => {}
        Some(MetaValue::F64(alpha)) if alpha.is_finite() => {}
        Some(MetaValue::F64(alpha)) => return Err(format!("its scale (adapter.lora.alpha) is {alpha}")),
        Some(_) => return Err("its scale (adapter.lora.alpha) is not a float".into()),
    }
    let mut factors: BTreeMap<&str, Factors<'_>> = BTreeMap::new();
    for tensor in &file.tensors {
        let name = tensor.name.as_str();
        if let Some(weight) = name.strip_suffix(".lora_a") {
            factors.entry(weight).or_default().a = Some(tensor);
        } else if let Some(weight) = name.strip_suffix(".lora_b") {
            factors.entry(weight).or_default().b = Some(tensor);
        } else if !name.ends_with("_norm.weight") {
            // llama.cpp leaves those out.
            return Err(format!("has a tensor {}, which is neither .lora_a nor .lora_b", printable(name)));
        }
    }
    if factors.is_empty() {
        return Err("has no tensors".into());
    }
    let weights: BTreeMap<&str, &TensorInfo> =
        model.tensors.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
    for (name, factors) in factors {
        let weight = weights
            .get(name)
            .ok_or_else(|| format!("has factors of {}, which the model does not have", printable(name)))?;
        let (Some(a), Some(b)) = (factors.a, factors.b) else {
            return Err(format!("has only one factor of {name}"));
        };
        fits(weight, a, b)?;
    }
    Ok(())
}

/// Checks the factors of what is added to the products of a weight.
fn fits(weight: &TensorInfo, a: &TensorInfo, b: &TensorInfo) -> Result<(), String> {
    let name = &weight.name;
    for factor in [a, b] {
        let ty = &factor.ty;
        if !DataType::from_id(ty.id).is_some_and(DataType::is_multiplied) {
            return Err(format!("{}: no kernel for type {}", factor.name, ty.name));
        }
    }
    if weight.ty.name.eq_ignore_ascii_case("nvfp4") {
        return Err(format!("has factors of {name}, whose type {} takes none in llama.cpp", weight.ty.name));
    }
    let ([from, to, count, fourth], Shape(a_shape), Shape(b_shape)) = (weight.shape.0, a.shape, b.shape);
    let rank = b_shape[0];
    // Rows of a table are looked up in the first factor.
    let table = name.ends_with("token_embd.weight");
    let (a_wanted, b_wanted) = match table {
        true => ([rank, to, 1, 1], [rank, from, 1, 1]),
        false => ([from, rank, count, 1], [rank, to, count, 1]),
    };
    if (a_shape, b_shape) == (a_wanted, b_wanted) && fourth == 1 {
        return Ok(());
    }
    Err(format!("its factors {} and {} do not fit {name}, which is {}", a.shape, b.shape, weight.shape))
}
