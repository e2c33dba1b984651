//! Types of weights, by ggml's names, and their blocks.

/// A type of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightType {
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Iq4Nl,
    Mxfp4,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    Iq4Xs,
    Iq2Xxs,
    Iq2Xs,
    Iq2S,
    Iq3Xxs,
    Iq3S,
    Iq1S,
    Iq1M,
    F16,
    Bf16,
}

const _: () = {
    let mut number = 0;
    while number < WeightType::ALL.len() {
        assert!(WeightType::ALL[number] as usize == number, "in the order of their numbers");
        number += 1;
    }
};

impl WeightType {
    /// All types, in the order of their numbers.
    pub const ALL: [Self; 22] = [
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Iq4Nl,
        Self::Mxfp4,
        Self::Q8_0,
        Self::Q2K,
        Self::Q3K,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
        Self::Iq4Xs,
        Self::Iq2Xxs,
        Self::Iq2Xs,
        Self::Iq2S,
        Self::Iq3Xxs,
        Self::Iq3S,
        Self::Iq1S,
        Self::Iq1M,
        Self::F16,
        Self::Bf16,
    ];

    /// ggml's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Q4_0 => "q4_0",
            Self::Q4_1 => "q4_1",
            Self::Q5_0 => "q5_0",
            Self::Q5_1 => "q5_1",
            Self::Iq4Nl => "iq4_nl",
            Self::Mxfp4 => "mxfp4",
            Self::Q8_0 => "q8_0",
            Self::Q2K => "q2_K",
            Self::Q3K => "q3_K",
            Self::Q4K => "q4_K",
            Self::Q5K => "q5_K",
            Self::Q6K => "q6_K",
            Self::Iq4Xs => "iq4_xs",
            Self::Iq2Xxs => "iq2_xxs",
            Self::Iq2Xs => "iq2_xs",
            Self::Iq2S => "iq2_s",
            Self::Iq3Xxs => "iq3_xxs",
            Self::Iq3S => "iq3_s",
            Self::Iq1S => "iq1_s",
            Self::Iq1M => "iq1_m",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }

    /// The type with this name, in ggml's spelling; `None` if kernels do not know it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ty| ty.name() == name)
    }

    /// Values of a block; rows of floats are divided into as many.
    pub const fn block(self) -> usize {
        match self {
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Iq4Nl | Self::Mxfp4 | Self::Q8_0 => 32,
            Self::F16 | Self::Bf16 => 32,
            _ => 256,
        }
    }

    /// Bytes of a block.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::Q4_0 | Self::Iq4Nl => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Mxfp4 => 17,
            Self::Q8_0 => 34,
            Self::Q2K => 84,
            Self::Q3K => 110,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
            Self::Iq4Xs => 136,
            Self::Iq2Xxs => 66,
            Self::Iq2Xs => 74,
            Self::Iq2S => 82,
            Self::Iq3Xxs => 98,
            Self::Iq3S => 110,
            Self::Iq1S => 50,
            Self::Iq1M => 56,
            Self::F16 | Self::Bf16 => 64,
        }
    }

    /// Bytes of a row of `n` values.
    pub const fn row_bytes(self, n: usize) -> usize {
        n / self.block() * self.block_bytes()
    }

    /// Bytes before a block's first word of 4 bytes: those of a scale that is no word.
    pub(crate) const fn head(self) -> usize {
        match self {
            Self::Q4_0 | Self::Q5_0 | Self::Iq4Nl | Self::Q8_0 => 2,
            Self::Iq2Xxs | Self::Iq2Xs | Self::Iq2S | Self::Iq3Xxs | Self::Iq3S | Self::Iq1S => 2,
            Self::Mxfp4 => 1,
            _ => 0,
        }
    }

    /// Excess of unpacked bytes.
    pub(crate) const fn offset(self) -> i32 {
        match self {
            Self::Q4_0 => 8,
            Self::Q5_0 => 16,
            Self::Mxfp4 => 12,
            Self::Q3K => 4,
            Self::Q6K => 32,
            Self::Q4_1 | Self::Q5_1 | Self::Q2K | Self::Q4K | Self::Q5K => 0,
            Self::F16 | Self::Bf16 => 0,
            _ => 128,
        }
    }

    /// The largest unpacked byte is smaller.
    #[cfg(target_arch = "x86_64")]
    pub(crate) const fn largest(self) -> usize {
        match self {
            Self::Iq4Nl | Self::Iq4Xs | Self::Q8_0 => 256,
            _ if self.has_grid() => 256,
            _ => 64,
        }
    }

    /// Returns true for floats, which have neither scales nor quants.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16)
    }

    /// Returns true if blocks have integers that scale parts of them.
    pub(crate) const fn has_superblocks(self) -> bool {
        self.block() == 256
    }

    /// Returns true if weights are entries of a grid, which indices refer to.
    pub const fn has_grid(self) -> bool {
        matches!(
            self,
            Self::Iq2Xxs | Self::Iq2Xs | Self::Iq2S | Self::Iq3Xxs | Self::Iq3S | Self::Iq1S | Self::Iq1M
        )
    }

    /// Returns true if blocks of 32 weights have a minimum.
    pub(crate) const fn has_minima(self) -> bool {
        matches!(self, Self::Q4_1 | Self::Q5_1)
    }
}
