//! CRC-32 of bytes that arrive in pieces, in any order.

use crc32fast::{Hasher, hash};

/// Returns what `bytes` contribute to the checksum of a whole in which `after` more bytes follow
/// them. The checksum is the XOR of the contributions of all pieces.
pub fn contribution(bytes: &[u8], after: u64) -> u32 {
    let mut piece = Hasher::new_with_initial_len(hash(bytes), bytes.len() as u64);
    // As if zeros followed whose own checksum contributes nothing.
    piece.combine(&Hasher::new_with_initial_len(0, after));
    piece.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_add_up_in_any_order(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6),
            backwards in any::<bool>(),
        ) {
            let mut left: usize = pieces.iter().map(Vec::len).sum();
            let mut contributions: Vec<u32> = Vec::new();
            for piece in &pieces {
                left -= piece.len();
                contributions.push(contribution(piece, left as u64));
            }
            if backwards {
                contributions.reverse();
            }
            prop_assert_eq!(contributions.iter().fold(0, |sum, piece| sum ^ piece), hash(&pieces.concat()));
        }
    }
}
