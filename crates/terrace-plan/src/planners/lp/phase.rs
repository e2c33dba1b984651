//! The parts of the expected work, each with costs of its own.

use super::variables::TIME;
use crate::place::batch::BatchCosts;
use crate::place::costs::Costs;
use crate::place::transfers::Transfers;
use good_lp::{Expression, Variable};

/// A part of the expected work: the decoding of a token, or a graph of the prompt.
pub(super) struct Phase<'a> {
    /// The graph; `None` for a token.
    pub of: Option<&'a BatchCosts>,
    /// Number of times it is computed.
    pub times: f64,
    /// Seconds of what it moves, by device.
    pub transfers: Vec<Transfers>,
    /// Milliseconds of all layers in sequence.
    pub computing: Expression,
    /// Milliseconds of reading.
    pub reading: Expression,
}

impl<'a> Phase<'a> {
    pub fn all(costs: &'a Costs, tables: Variable) -> Vec<Self> {
        let phase = |of: Option<&'a BatchCosts>, times, rows: f64, transfers| {
            let rows = Expression::from(0.0) + rows * TIME * tables;
            Self { of, times, transfers, computing: rows.clone(), reading: rows }
        };
        let transfers = costs.devices.iter().map(|device| device.transfers).collect();
        let token = phase(None, costs.output, costs.rows, transfers);
        let graph =
            |batch: &'a BatchCosts| phase(Some(batch), batch.times, batch.rows, batch.transfers.clone());
        [token].into_iter().chain(costs.batches.iter().map(graph)).collect()
    }

    pub fn dense(&self, costs: &Costs, layer: usize, place: usize) -> f64 {
        let described = place.checked_sub(1).map_or(0.0, |device| self.transfers[device].layer);
        let computed = match self.of {
            None => costs.layers[layer].dense[place],
            Some(batch) => batch.layers[layer].dense[place],
        };
        computed + described
    }
}
