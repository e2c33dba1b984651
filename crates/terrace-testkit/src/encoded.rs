//! A cache of tensors that were quantised earlier in this process. The models of a test often
//! differ in one or two tensors, and quantising the others again would take most of the time.

use crate::error::Error;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use terrace_ggml::quantize::WeightType;

/// Most bytes that are kept. If they are exceeded, all are dropped: large models gain nothing from
/// this.
const MAX_BYTES: usize = 128 << 20;

/// Type, length of a row, and two hashes of the values.
type Key = (WeightType, usize, u64, u64);

#[derive(Default)]
struct Encoded {
    kept: HashMap<Key, Arc<[u8]>>,
    bytes: usize,
}

static ENCODED: LazyLock<Mutex<Encoded>> = LazyLock::new(Mutex::default);

/// Returns the encoded bytes of `values`, made by `encode` unless they are in the cache.
pub fn encoded(
    ty: WeightType,
    values: &[f32],
    row: usize,
    encode: impl FnOnce() -> Result<Vec<u8>, Error>,
) -> Result<Arc<[u8]>, Error> {
    let key = (ty, row, hash(0, values), hash(1, values));
    let lock = || ENCODED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(bytes) = lock().kept.get(&key) {
        return Ok(Arc::clone(bytes));
    }
    let bytes: Arc<[u8]> = encode()?.into();
    let mut all = lock();
    if all.bytes + bytes.len() > MAX_BYTES {
        *all = Encoded::default();
    }
    if bytes.len() <= MAX_BYTES && all.kept.insert(key, Arc::clone(&bytes)).is_none() {
        all.bytes += bytes.len();
    }
    Ok(bytes)
}

fn hash(seed: u8, values: &[f32]) -> u64 {
    let mut hasher = DefaultHasher::new();
    seed.hash(&mut hasher);
    values.len().hash(&mut hasher);
    for value in values {
        hasher.write_u32(value.to_bits());
    }
    hasher.finish()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_same_values_are_encoded_once() {
        let of = |ty, values: &[f32], bytes: &[u8]| encoded(ty, values, 2, || Ok(bytes.to_vec())).unwrap();
        assert_eq!(*of(WeightType::Q8_0, &[1.0, 2.0], &[1]), [1]);
        assert_eq!(*of(WeightType::Q8_0, &[1.0, 2.0], &[2]), [1]);
        assert_eq!(*of(WeightType::Q8_0, &[2.0, 1.0], &[3]), [3]);
        assert_eq!(*of(WeightType::Q4_0, &[1.0, 2.0], &[4]), [4]);
    }
}
