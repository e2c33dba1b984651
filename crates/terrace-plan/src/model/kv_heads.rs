//! The types that a model's keys and values can have, by the sizes of its attention heads.
//!
//! Quantised types store blocks of 32 values, and llama.cpp makes no context whose heads are not whole blocks
//! (`llama_init_from_model`).

use crate::error::PlanError;
use terrace_model::{KvType, KvTypes, ModelFile};

/// Checks that a model's heads are whole blocks of these types.
///
/// # Errors
/// [`PlanError::KvHead`] names the type and the head size that do not fit. [`PlanError::KvDiffer`]: with latent
/// attention, values are part of the rows of the keys, and have their type.
pub fn check_kv_types(model: &ModelFile, types: KvTypes) -> Result<(), PlanError> {
    let latent = model.arch_u64("attention.kv_lora_rank").is_some_and(|rank| rank > 0);
    if latent && types.keys != types.values {
        return Err(PlanError::KvDiffer { keys: types.keys, values: types.values });
    }
    for (what, ty) in [("key", types.keys), ("value", types.values)] {
        let block = KvType::BLOCK;
        let mut heads = head_sizes(model, what).into_iter().filter(|_| ty.is_quantised());
        if let Some(head) = heads.find(|head| !head.is_multiple_of(block)) {
            return Err(PlanError::KvHead { what, ty, block, head });
        }
    }
    Ok(())
}

/// Returns the sizes of a model's heads of keys or values: those with sliding windows may have another one.
fn head_sizes(model: &ModelFile, what: &str) -> Vec<u64> {
    let heads = model.arch_u64("attention.head_count").unwrap_or(0);
    let even = || model.arch_u64("embedding_length").unwrap_or(0).checked_div(heads);
    let full = model.arch_u64(&format!("attention.{what}_length")).or_else(even);
    let windowed = model.arch_u64(&format!("attention.{what}_length_swa"));
    full.into_iter().chain(windowed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use terrace_model::MetaValue;

    fn model(pairs: &[(&str, u64)]) -> ModelFile {
        let mut metadata: BTreeMap<_, _> =
            pairs.iter().map(|(key, value)| (format!("m.{key}"), MetaValue::U64(*value))).collect();
        metadata.insert("general.architecture".into(), MetaValue::Str("m".into()));
        ModelFile { shards: vec![], version: 3, alignment: 32, metadata, tensors: vec![], mtp: None }
    }

    const EIGHT: KvTypes = KvTypes::both(KvType::Q8_0);

    #[test]
    fn heads_are_whole_blocks() {
        let even = |embd| model(&[("embedding_length", embd), ("attention.head_count", 4)]);
        assert_eq!(check_kv_types(&even(256), EIGHT), Ok(()));
        let error = PlanError::KvHead { what: "key", ty: KvType::Q8_0, block: 32, head: 80 };
        assert_eq!(check_kv_types(&even(320), EIGHT), Err(error));
        for ty in KvType::ALL {
            let result = check_kv_types(&even(320), KvTypes::both(ty));
            assert_eq!(result.is_err(), !matches!(ty, KvType::F32 | KvType::F16 | KvType::Bf16), "{ty}");
        }
        // Said in the header, for all layers, for values, and for those with windows.
        for (key, what) in [
            ("attention.key_length", "key"),
            ("attention.value_length", "value"),
            ("attention.value_length_swa", "value"),
        ] {
            let model = model(&[("embedding_length", 256), ("attention.head_count", 4), (key, 40)]);
            let error = PlanError::KvHead { what, ty: KvType::Q8_0, block: 32, head: 40 };
            assert_eq!(check_kv_types(&model, EIGHT), Err(error));
        }
        // Only the type that is quantised has blocks.
        let values = model(&[("attention.key_length", 128), ("attention.value_length", 40)]);
        let keys_alone = KvTypes { keys: KvType::Q4_0, values: KvType::F16 };
        assert_eq!(check_kv_types(&values, keys_alone), Ok(()));
    }

    #[test]
    fn latent_attention_has_one_type() {
        let model = model(&[("attention.kv_lora_rank", 512), ("attention.key_length", 576)]);
        let differ = KvTypes { keys: KvType::Q8_0, values: KvType::F16 };
        let error = PlanError::KvDiffer { keys: KvType::Q8_0, values: KvType::F16 };
        assert_eq!(check_kv_types(&model, differ), Err(error));
        assert_eq!(check_kv_types(&model, EIGHT), Ok(()));
    }
}
