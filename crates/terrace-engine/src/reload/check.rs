//! Checks replacements against the model without reading any tensor data.

use super::error::{Refusal, ReloadError, all_or_nothing};
use super::find::{Found, Search, Target, TensorReload};
use super::registry::{Entry, Registry, is_streamed};
use super::replacement::Take;
use crate::load::split::{attention_granularity, ffn_granularity, has_parts};
use terrace_ggml::DataType;
use terrace_ggml::llama::Weight;
use terrace_model::{Name, TensorInfo};
use terrace_plan::model::TensorClass;

/// The type of a head that llama.cpp scales.
const SCALED: &str = "nvfp4";

/// Checks a search, leaving out tensors that already are what is wanted, and where the search says so, those
/// that cannot be replaced.
pub fn accepted(registry: &Registry, mut search: Search) -> Result<Search, ReloadError> {
    let mut refusals = Vec::new();
    let mut accepted = Vec::new();
    for TensorReload { entry: index, to } in std::mem::take(&mut search.wanted) {
        let entry = &registry.entries[index];
        let original = entry.current == entry.original;
        let path = match &to {
            Target::Original => &entry.original.path,
            Target::Found(found) => &found.path,
        };
        if let Err(reason) = acceptable(registry, entry, &to) {
            let tensor = entry.original.info.name.clone();
            let refusal = Refusal { tensor, path: Some(path.clone()), reason };
            let keeps = match &to {
                Target::Original => true,
                Target::Found(found) => entry.keeps_bytes(found.in_place),
            };
            match search.take == Take::Acceptable && keeps {
                true => search.refused.push(refusal),
                false => refusals.push(refusal),
            }
            continue;
        }
        let to = match to {
            Target::Original if original => continue,
            Target::Found(found) if entry.intact && is_original(entry, &found) => {
                if original {
                    continue;
                }
                Target::Original
            }
            other => other,
        };
        accepted.push(TensorReload { entry: index, to });
    }
    all_or_nothing(Search { wanted: accepted, ..search }, refusals)
}

/// Returns true if the file is the one that was loaded, unchanged since.
fn is_original(entry: &Entry, found: &Found) -> bool {
    let original = &entry.original;
    original.path == found.path
        && original.state.is_some_and(|state| state.same_bytes(&found.state))
        && original.info.extent.offset == found.info.extent.offset
}

/// Checks that the tensor can become `to`. The error is the reason for refusal.
fn acceptable(registry: &Registry, entry: &Entry, to: &Target) -> Result<(), String> {
    if let Some(reason) = entry.fixed() {
        return Err(reason);
    }
    let found = match to {
        Target::Original if entry.intact => return Ok(()),
        Target::Original => {
            return Err("the original bytes are gone: their file was overwritten in place".into());
        }
        Target::Found(found) => &found.info,
    };
    let original = &entry.original.info;
    if found.shape != original.shape {
        return Err(format!("its shape is {} in the file, but {} in the model", found.shape, original.shape));
    }
    if found.ty == original.ty {
        return Ok(());
    }
    let (from, to) = (&original.ty.name, &found.ty.name);
    if !is_matrix(original, entry.class) {
        return Err(format!("its type is {to} in the file, but it is used where only {from} works"));
    }
    let ty = DataType::from_id(found.ty.id).ok_or_else(|| format!("unknown type {to}"))?;
    scaled(registry, original, found)?;
    if entry.weights.iter().any(Weight::is_split) {
        cuttable(registry, entry, found)?;
    }
    let rows = entry.class == TensorClass::TokenEmbedding;
    match entry
        .weights
        .iter()
        .find(|weight| !weight.can_be(ty, weight.is_host() || is_streamed(weight), rows))
    {
        Some(weight) => Err(format!("no kernel for type {to} on {}", weight.place())),
        None => Ok(()),
    }
}

/// Checks that the head of a model keeps the type for which llama.cpp loads its scales: with another one it
/// would not, and nothing tells the graph.
fn scaled(registry: &Registry, original: &TensorInfo, found: &TensorInfo) -> Result<(), String> {
    let scale =
        ["output.scale", "output.input_scale"].into_iter().find(|name| registry.index_of(name).is_some());
    match scale {
        Some(scale) if original.name == "output.weight" && original.ty.name.eq_ignore_ascii_case(SCALED) => {
            Err(format!(
                "llama.cpp scales it by {scale} because it is {SCALED}, and would not scale {}",
                found.ty.name
            ))
        }
        _ => Ok(()),
    }
}

/// Checks that the tensor, as found, can be sliced for the devices.
fn cuttable(registry: &Registry, entry: &Entry, found: &TensorInfo) -> Result<(), String> {
    let devices = registry.slices;
    match Name::of(&found.name).role {
        "ffn_down" | "ffn_down_exps" => {
            let granularity = ffn_granularity(&found.ty);
            if has_parts(found.shape.0[0], granularity, devices) {
                return Ok(());
            }
            Err(format!(
                "cannot be sliced for {devices} devices: with borders at multiples of {granularity}, one gets nothing"
            ))
        }
        "attn_output" | "ssm_out" => {
            let granularity = |ty| registry.head_group.map(|group| attention_granularity(group, devices, ty));
            if granularity(&found.ty).is_some_and(|there| granularity(&entry.original.info.ty) == Some(there))
            {
                return Ok(());
            }
            let (from, to) = (&entry.original.info.ty.name, &found.ty.name);
            Err(format!("the KV cache is sliced by this tensor's block size, so {from} cannot become {to}"))
        }
        _ => Ok(()),
    }
}

/// Returns true if it is a matrix that activations are multiplied by, or a table of rows: these can be of
/// any type.
fn is_matrix(info: &TensorInfo, class: TensorClass) -> bool {
    let Name { role, kind, .. } = Name::of(&info.name);
    // `indexer.attn_q_b` counts as attention's.
    let role = role.rsplit_once('.').map_or(role, |(_, part)| part);
    let matrix = match class {
        TensorClass::Expert
        | TensorClass::SharedExpert
        | TensorClass::DenseFfn
        | TensorClass::Router
        | TensorClass::Output => true,
        TensorClass::TokenEmbedding => role == "token_embd",
        TensorClass::Attention => {
            role.starts_with("attn_") && !role.contains("sinks") && !role.contains("rel_b")
                || ["ssm_in", "ssm_out"].contains(&role)
        }
        TensorClass::Norm | TensorClass::Other => false,
    };
    matrix && info.shape.dims() >= 2 && kind == "weight"
}
