//! Transfers of graphs between RAM and devices: activations, inputs, logits, and, to devices of other
//! machines, the graph itself.

use super::assignment::Assignment;
use super::workload::Workload;
use crate::machine::DeviceProfile;

/// llama.cpp pads the keys that a graph attends to, to multiples of this many tokens. Within them a
/// graph stays the same, and a server keeps it.
const PADDING: f64 = 256.0;
/// Bytes per pair of a token and a key that its attention is masked for, in f16.
const MASK: f64 = 2.0;
/// Bytes of ggml's RPC messages to a server for a graph, apart from what they carry: headers of five
/// inputs, and of the request for the result.
const MESSAGES: f64 = 2048.0;
/// Bytes of a layer's part of a graph, as ggml's RPC sends it: about a hundred nodes and weights of
/// 304 bytes each.
const GRAPH: f64 = 30e3;
/// The same without its experts.
const GRAPH_WITHOUT_EXPERTS: f64 = 16.5e3;

/// Bytes that a graph moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moved {
    /// Activations, between layers at different places.
    pub activations: f64,
    /// Results of a layer's experts in RAM: a row for each expert that a token uses, which the
    /// layer's device adds up.
    pub results: f64,
    /// Input of each device for its first layer.
    pub inputs: f64,
    /// The share of graphs that a server gets a description of, if it computes each in one piece: it
    /// keeps the last one.
    pub described: f64,
    /// Logits, from the device with the head.
    pub logits: f64,
}

/// Seconds of the same, to or from one device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfers {
    /// Activations in one direction.
    pub hop: f64,
    /// A layer's activations to its experts in RAM, and their results back.
    pub experts: f64,
    pub inputs: f64,
    /// The description of a layer, if its device computes the graph in one piece.
    pub layer: f64,
    /// A byte of such descriptions.
    pub described: f64,
    pub logits: f64,
}

impl Moved {
    /// Computes the bytes of a graph that generates a token for each of `tokens` sequences, which
    /// have `context` tokens each.
    pub fn decoding(work: &Workload, tokens: f64, context: f64) -> Self {
        Self { described: 1.0 / PADDING, ..Self::prompt(work, tokens, tokens, context) }
    }

    /// Computes the bytes of a graph of `tokens` tokens, with logits of `outputs` of them, that
    /// attends to `context` tokens on average.
    pub fn prompt(work: &Workload, tokens: f64, outputs: f64, context: f64) -> Self {
        let keys = (context / PADDING).ceil().max(1.0) * PADDING;
        Self {
            activations: tokens * work.embd as f64 * 4.0,
            results: work.experts.map_or(0.0, |(_, used)| f64::from(used)) * tokens * work.embd as f64 * 4.0,
            inputs: tokens * keys * MASK + MESSAGES,
            described: 1.0,
            logits: outputs * work.vocab as f64 * 4.0,
        }
    }

    /// Returns the seconds that it takes to move them to or from a device.
    pub fn seconds(&self, device: &DeviceProfile) -> Transfers {
        let remote = device.address.is_some();
        let hop = device.hop(self.activations);
        // Drivers keep graphs.
        let described = if remote { 1.0 / device.h2d() } else { 0.0 };
        Transfers {
            hop,
            // A server is asked for the activations, and then for the choice of experts. What a device of
            // this machine gets back is little beside its bus.
            experts: if remote { 2.0 * device.hop(0.0) + hop + device.hop(self.results) } else { 2.0 * hop },
            // Inputs are not waited for.
            inputs: self.inputs / device.h2d(),
            layer: self.described * GRAPH * described,
            described,
            logits: device.hop(self.logits),
        }
    }
}

/// The way of a graph through places, and what it moves at each.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Transfers of activations to and from each place, between layers.
    between: Vec<f64>,
    /// Number of layers at each place with experts in RAM.
    experts: Vec<f64>,
    /// The pieces of the graph that each place computes.
    pieces: Vec<Pieces>,
    /// The place of the head.
    head: usize,
}

/// The pieces of a graph that a place computes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Pieces {
    /// Their number.
    count: u32,
    /// Bytes of their descriptions. A piece comes with all that its place has computed of the same
    /// layers before: the hidden state depends on it.
    bytes: f64,
}

impl Pieces {
    fn add(&mut self, bytes: f64) {
        self.count += 1;
        self.bytes += bytes;
    }

    /// Bytes that a server gets of them for a graph: of a single piece, the share `described`; of
    /// several all, because only the last one is kept.
    fn described(&self, described: f64) -> f64 {
        self.bytes * if self.count > 1 { 1.0 } else { described }
    }
}

impl Assignment {
    /// Returns the way of a graph.
    pub fn route(&self, work: &Workload, places: usize) -> Route {
        let mut route = Route {
            between: vec![0.0; places],
            experts: vec![0.0; places],
            pieces: vec![Pieces::default(); places],
            head: self.homes.last().copied().unwrap_or(0),
        };
        let (mut before, mut piece) = (0, 0.0);
        for (&home, (layer, &hot)) in self.homes.iter().zip(work.layers.iter().zip(&self.hot)) {
            if home != before {
                // Between devices they go through RAM.
                route.between[before] += 1.0;
                route.between[home] += 1.0;
                route.pieces[before].add(piece);
                piece = 0.0;
            }
            if layer.experts.as_ref().is_some_and(|experts| home > 0 && hot < experts.count) {
                route.experts[home] += 1.0;
                piece += GRAPH_WITHOUT_EXPERTS;
                route.pieces[home].add(piece);
            } else {
                piece += GRAPH;
            }
            before = home;
        }
        route.pieces[before].add(piece);
        route
    }
}

impl Route {
    /// Returns the seconds of all transfers but those within layers. `described`: the share of graphs
    /// that a server gets a description of.
    pub fn between(&self, devices: impl Iterator<Item = Transfers>, described: f64) -> f64 {
        let of = |(at, device): (usize, Transfers)| {
            let pieces = self.pieces[at];
            let inputs = if pieces.count > 0 { device.inputs } else { 0.0 };
            let logits = if self.head == at { device.logits } else { 0.0 };
            self.between[at] * device.hop + pieces.described(described) * device.described + inputs + logits
        };
        (1..).zip(devices).map(of).sum()
    }

    /// Returns the seconds of transfers within layers.
    pub fn experts(&self, devices: impl Iterator<Item = Transfers>) -> f64 {
        (1..).zip(devices).map(|(at, device): (usize, Transfers)| self.experts[at] * device.experts).sum()
    }

    /// Returns the bytes of all transfers to and from a place, which is a device of another machine.
    pub fn bytes(&self, place: usize, moved: &Moved) -> f64 {
        let pieces = self.pieces[place];
        let inputs = if pieces.count > 0 { moved.inputs } else { 0.0 };
        let logits = if self.head == place { moved.logits } else { 0.0 };
        let experts = self.experts[place] * (moved.activations + moved.results);
        let hops = self.between[place] * moved.activations;
        hops + experts + pieces.described(moved.described) + inputs + logits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_keeps_one_piece_of_a_graph_and_gets_several_each_time() {
        let mut pieces = Pieces::default();
        pieces.add(3.0 * GRAPH);
        assert_eq!(pieces.described(0.5), 1.5 * GRAPH);
        pieces.add(GRAPH);
        assert_eq!(pieces.described(0.5), 4.0 * GRAPH);
    }
}
