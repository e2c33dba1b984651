//! Numbers that stand for the embeddings of an image, where others are tokens.

use sha2::{Digest, Sha256};

/// Numbers in a hash.
const IN_A_HASH: usize = 8;

/// `count` negative numbers for a piece of an image: the same for the same piece of the same image
/// (`contents`) by the same projector (`seed`), and others otherwise. Each has 31 bits of a hash, so
/// that images with as many tokens as real ones have cannot be confused, not even on purpose.
pub fn stand_ins(seed: &[u8; 32], contents: &[u8; 32], piece: u32, count: usize) -> Vec<i32> {
    let mut numbers = Vec::with_capacity(count.next_multiple_of(IN_A_HASH));
    let mut block = 0u64;
    while numbers.len() < count {
        let hash = Sha256::new()
            .chain_update(seed)
            .chain_update(contents)
            .chain_update(piece.to_le_bytes())
            .chain_update(block.to_le_bytes())
            .finalize();
        let number = |bytes: &[u8]| i32::from_le_bytes(bytes.try_into().expect("four bytes")) | i32::MIN;
        numbers.extend(hash.chunks_exact(4).map(number));
        block += 1;
    }
    numbers.truncate(count);
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_from_projector_image_and_piece() {
        let (a, b) = ([1; 32], [2; 32]);
        let numbers = stand_ins(&a, &b, 0, 20);
        assert_eq!(numbers.len(), 20);
        assert!(numbers.iter().all(|&number| number < 0));
        assert_eq!(stand_ins(&a, &b, 0, 9), numbers[..9]);
        for other in [stand_ins(&b, &b, 0, 20), stand_ins(&a, &a, 0, 20), stand_ins(&a, &b, 1, 20)] {
            assert!(other.iter().zip(&numbers).all(|(other, number)| other != number));
        }
    }
}
