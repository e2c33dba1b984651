//! Layouts of cached rows, which are ggml's.

use crate::weight_type::WeightType;

/// Values in a block of a quantised type.
pub(crate) const BLOCK: usize = 32;

/// Type of keys or values in a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheType {
    /// 32-bit floats.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// Blocks of 32 bytes with a binary16 scale.
    Q8_0,
    /// Blocks of 32 nibbles, each 8 too large, with a binary16 scale.
    Q4_0,
    /// Blocks of 32 nibbles with a binary16 scale and minimum.
    Q4_1,
    /// Blocks of 32 numbers of 5 bits, each 16 too large, with a binary16 scale.
    Q5_0,
    /// Blocks of 32 numbers of 5 bits with a binary16 scale and minimum.
    Q5_1,
    /// Blocks of 32 nibbles, indices into a table of 16 values, with a binary16 scale.
    Iq4Nl,
}

/// Values of nibbles that are numbers, or parts of numbers.
const PLAIN_VALUES: [i8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
/// Values of the nibbles of Q4_0.
pub(crate) const Q4_0_VALUES: [i8; 16] = [-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7];
/// Values of the nibbles of IQ4_NL.
pub(crate) const IQ4_NL_VALUES: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The same, 128 too large.
pub(crate) const IQ4_NL_BYTES: [u8; 16] = {
    let mut bytes = [0; 16];
    let mut i = 0;
    while i < 16 {
        bytes[i] = (IQ4_NL_VALUES[i] as i16 + 128) as u8;
        i += 1;
    }
    bytes
};

impl CacheType {
    /// All types.
    pub const ALL: [Self; 9] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q8_0,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Iq4Nl,
    ];

    /// Returns true if rows consist of blocks of 32 values.
    pub const fn is_quantised(self) -> bool {
        !matches!(self, Self::F32 | Self::F16 | Self::Bf16)
    }

    /// Bytes of a row of `n` values.
    pub const fn row_bytes(self, n: usize) -> usize {
        match self {
            Self::F32 => n * 4,
            Self::F16 | Self::Bf16 => n * 2,
            Self::Q8_0 => n / BLOCK * 34,
            Self::Q5_1 => n / BLOCK * 24,
            Self::Q5_0 => n / BLOCK * 22,
            Self::Q4_1 => n / BLOCK * 20,
            Self::Q4_0 | Self::Iq4Nl => n / BLOCK * 18,
        }
    }

    /// Rows of a quantised type as weights.
    pub(crate) const fn weights(self) -> Option<WeightType> {
        match self {
            Self::Q8_0 => Some(WeightType::Q8_0),
            Self::Q4_0 => Some(WeightType::Q4_0),
            Self::Q4_1 => Some(WeightType::Q4_1),
            Self::Q5_0 => Some(WeightType::Q5_0),
            Self::Q5_1 => Some(WeightType::Q5_1),
            Self::Iq4Nl => Some(WeightType::Iq4Nl),
            Self::F32 | Self::F16 | Self::Bf16 => None,
        }
    }

    /// Returns true if blocks have a minimum, which is added to their values.
    pub(crate) const fn has_minima(self) -> bool {
        matches!(self, Self::Q4_1 | Self::Q5_1)
    }

    /// Returns true if nibbles are the low bits of numbers of 5 bits.
    pub(crate) const fn has_fifth_bits(self) -> bool {
        matches!(self, Self::Q5_0 | Self::Q5_1)
    }

    /// Values of the nibbles of a block, which are its last 16 bytes.
    pub(crate) const fn nibbles(self) -> Option<&'static [i8; 16]> {
        match self {
            Self::Q4_0 => Some(&Q4_0_VALUES),
            Self::Iq4Nl => Some(&IQ4_NL_VALUES),
            Self::Q4_1 | Self::Q5_0 | Self::Q5_1 => Some(&PLAIN_VALUES),
            Self::F32 | Self::F16 | Self::Bf16 | Self::Q8_0 => None,
        }
    }
}
