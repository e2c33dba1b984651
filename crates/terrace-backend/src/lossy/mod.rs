//! Lossy routing: tokens that use what is in memory instead of what would have to be read.
//!
//! A token's router ranks all experts. Those in memory get a bonus (*cache prior*, arXiv 2412.00099),
//! so that of two nearly equal experts the one that costs no read is chosen; and of the chosen, those of
//! little weight that would have to be read are left out (*dropping*), or read in fewer bits from another
//! file (*low*, arXiv 2411.01433). Weights stay those of the
//! router. Only passes of one token are changed: what is computed together shares its reads anyway.

mod choice;
mod low;
mod nodes;
mod tally;

pub use choice::{Choice, shares};
pub use low::{LowChoice, reads_less};
pub use nodes::{LossyNodes, Subject};
pub use tally::{LossyCounts, LossyTally};

use terrace_model::LayerId;

/// Permitted deviations of tokens from the router's choice.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LossyRouting {
    /// The bonus of experts in memory, as a share of the range of the token's scores; 0: none.
    pub prior: f32,
    /// Experts of a token that are chosen by score alone.
    pub keep: u32,
    /// An expert that is not in memory is left out if its share of the token's weights is below this
    /// over top-k; 0: none is.
    pub drop: f32,
    /// An expert that is not in memory is read in fewer bits, if there is such a copy and its share of
    /// the token's weights is below this over top-k; 0: none is.
    pub low: f32,
    /// Experts of a token, by weight, that are always read in full.
    pub low_keep: u32,
    /// The layer in which less is permitted.
    pub spared: Option<SparedLayer>,
}

/// A layer whose losses cost more than those of others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SparedLayer {
    /// The layer.
    pub layer: LayerId,
    /// The weight below which experts are left out, as a share of that in the others; its bonus is less by the square of that.
    pub limit: f32,
}

impl LossyRouting {
    /// Returns true if this changes nothing.
    pub fn is_exact(&self) -> bool {
        self.prior <= 0.0 && self.drop <= 0.0 && self.low <= 0.0
    }

    /// The deviations that are permitted in a layer.
    #[must_use]
    pub fn of_layer(self, layer: Option<LayerId>) -> Self {
        match self.spared {
            Some(spared) if layer == Some(spared.layer) => Self {
                prior: self.prior * spared.limit * spared.limit,
                drop: self.drop * spared.limit,
                ..self
            },
            _ => self,
        }
    }
}
