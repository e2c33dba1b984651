//! What graphs move between RAM and devices: activations, inputs, logits, and, to devices of other
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

/// Bytes that a graph moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moved {
    /// Activations, between layers at different places.
    pub activations: f64,
    /// What each device with layers gets for the first of them.
    pub inputs: f64,
    /// The description of a layer, to devices of other machines.
    pub layer: f64,
    /// Logits, from the device with the head.
    pub logits: f64,
}

/// Seconds of the same, to or from one device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfers {
    /// Activations in one direction.
    pub hop: f64,
    /// Inputs.
    pub inputs: f64,
    /// The description of a layer.
    pub layer: f64,
    /// Logits.
    pub logits: f64,
}

impl Moved {
    /// Computes the bytes of a graph that generates a token for each of `tokens` sequences, which
    /// have `context` tokens each.
    pub fn decoding(work: &Workload, tokens: f64, context: f64) -> Self {
        Self { layer: GRAPH / PADDING, ..Self::prompt(work, tokens, tokens, context) }
    }

    /// Computes the bytes of a graph of `tokens` tokens, with logits of `outputs` of them, that
    /// attends to `context` tokens on average.
    pub fn prompt(work: &Workload, tokens: f64, outputs: f64, context: f64) -> Self {
        let keys = (context / PADDING).ceil().max(1.0) * PADDING;
        Self {
            activations: tokens * work.embd as f64 * 4.0,
            inputs: tokens * keys * MASK + MESSAGES,
            layer: GRAPH,
            logits: outputs * work.vocab as f64 * 4.0,
        }
    }

    /// Returns the seconds that it takes to move them to or from a device.
    pub fn seconds(&self, device: &DeviceProfile) -> Transfers {
        // Inputs are not waited for, and drivers keep graphs.
        let layer = if device.address.is_some() { self.layer / device.h2d() } else { 0.0 };
        Transfers {
            hop: device.hop(self.activations),
            inputs: self.inputs / device.h2d(),
            layer,
            logits: device.hop(self.logits),
        }
    }
}

/// The way of a graph through places, and what it moves at each.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Transfers of activations to and from each place, between layers.
    between: Vec<f64>,
    /// The same within layers, to the experts that are in RAM and back.
    experts: Vec<f64>,
    /// Number of layers at each place, the head included.
    layers: Vec<usize>,
    /// The place of the head.
    head: usize,
}

impl Assignment {
    /// Returns the way of a graph.
    pub fn route(&self, work: &Workload, places: usize) -> Route {
        let mut route = Route {
            between: vec![0.0; places],
            experts: vec![0.0; places],
            layers: vec![0; places],
            head: self.homes.last().copied().unwrap_or(0),
        };
        let mut before = 0;
        for (&home, (layer, &hot)) in self.homes.iter().zip(work.layers.iter().zip(&self.hot)) {
            route.layers[home] += 1;
            if home != before {
                // Between devices they go through RAM.
                route.between[before] += 1.0;
                route.between[home] += 1.0;
            }
            if layer.experts.as_ref().is_some_and(|experts| home > 0 && hot < experts.count) {
                route.experts[home] += 2.0;
            }
            before = home;
        }
        route
    }
}

impl Route {
    /// Returns the seconds of all transfers but those within layers.
    pub fn between(&self, devices: impl Iterator<Item = Transfers>) -> f64 {
        let of = |(at, device): (usize, Transfers)| {
            let inputs = if self.layers[at] > 0 { device.inputs } else { 0.0 };
            let logits = if self.head == at { device.logits } else { 0.0 };
            self.between[at] * device.hop + self.layers[at] as f64 * device.layer + inputs + logits
        };
        (1..).zip(devices).map(of).sum()
    }

    /// Returns the seconds of transfers within layers.
    pub fn experts(&self, devices: impl Iterator<Item = Transfers>) -> f64 {
        (1..).zip(devices).map(|(at, device): (usize, Transfers)| self.experts[at] * device.hop).sum()
    }

    /// Returns the bytes of all transfers to and from a place, which is a device of another machine.
    pub fn bytes(&self, place: usize, moved: &Moved) -> f64 {
        let layers = self.layers[place];
        let inputs = if layers > 0 { moved.inputs } else { 0.0 };
        let logits = if self.head == place { moved.logits } else { 0.0 };
        let hops = self.between[place] + self.experts[place];
        hops * moved.activations + layers as f64 * moved.layer + inputs + logits
    }
}
