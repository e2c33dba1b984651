//! Private functions that the targets in `fuzz/` call. Exists only with `--cfg fuzzing`.

use crate::base_logits::BaseLogits;
use std::path::Path;
use terrace_model::ByteSize;

/// Reads a base file as a comparison does: once a chunk at a time, once all at once.
///
/// # Panics
/// Both differ, or something is not a log probability.
pub fn base_logits(path: &Path) {
    let (Ok(mut base), Ok(mut all)) = (BaseLogits::open(path), BaseLogits::open(path)) else { return };
    let vocab = base.vocab();
    assert!(base.tokens().iter().all(|&token| usize::try_from(token).is_ok_and(|token| token < vocab)));
    assert_eq!(base.tokens().len(), base.chunks() * base.context());
    assert!(all.keep_in_memory(ByteSize::mib(64)).expect("the file is whole"));
    for chunk in 0..base.chunks() {
        let (rows, held) = (base.chunk(chunk), all.chunk(chunk));
        let (Ok(rows), Ok(held)) = (&rows, &held) else {
            assert_eq!(rows.is_err(), held.is_err());
            continue;
        };
        for (row, same) in rows.iter().zip(held) {
            assert_eq!(row.levels(), same.levels());
            assert!(row.top() < vocab);
            let probabilities = row.probabilities();
            for &level in row.levels() {
                assert!(!row.ln(level).is_nan());
                assert!(probabilities.of(level) >= 0.0, "level {level} of {row:?}");
            }
        }
    }
}
