//! Importance matrices of both formats.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use terrace_fuzz::Scratch;
use terrace_ggml::quantize::imatrix::Imatrix;

static SCRATCH: LazyLock<Scratch> = LazyLock::new(Scratch::new);

fuzz_target!(|data: &[u8]| {
    let path = SCRATCH.write("imatrix", data);
    match Imatrix::read(&path) {
        Ok(matrix) => {
            assert!(!matrix.is_empty());
            for name in ["blk.0.ffn_up.weight", "blk.0.ffn_up_exps.weight", "a"] {
                let values = matrix.get(name).unwrap_or_default();
                assert!(values.iter().all(|value| value.is_finite() && *value >= 0.0), "{values:?}");
                assert!(4 * values.len() <= data.len());
            }
        }
        Err(error) => assert!(!error.to_string().contains(char::is_control), "{error}"),
    }
});
