//! Passes of tokens through the model. With devices beside this one, ggml's scheduler cuts a graph
//! into pieces, and what happens once per token happens with the first of them.

use std::time::Instant;
use terrace_ggml::{Graph, Place};
use terrace_model::LayerId;

/// The current pass.
#[derive(Debug, Default)]
pub struct Pass {
    /// True if a graph was announced whose first piece has not come yet.
    announced: bool,
    /// The end of the last piece, if that was computed.
    last: Option<End>,
    /// True if the current piece is the first of its pass.
    new: bool,
    /// True if no piece of the pass has needed weights from the store yet.
    fresh: bool,
}

/// The end of a piece.
#[derive(Clone, Copy, Debug)]
pub struct End {
    place: Place,
    /// When it was computed.
    pub at: Instant,
    /// The layer of its last node.
    pub layer: Option<LayerId>,
}

impl Pass {
    /// llama.cpp is about to have a graph computed.
    pub fn announce(&mut self) {
        self.announced = true;
    }

    /// A piece begins. Returns the end of the piece before if another backend has computed nodes
    /// between the two.
    pub fn begin(&mut self, place: Place) -> Option<End> {
        // A graph that was computed incompletely may start again anywhere.
        let announced = std::mem::take(&mut self.announced);
        let last = self.last.take().filter(|last| !announced && place.is_after(last.place));
        self.new = last.is_none();
        self.fresh |= self.new;
        last.filter(|last| !place.follows(last.place))
    }

    /// A piece was computed at `at`.
    pub fn end(&mut self, place: Place, at: Instant, layer: Option<LayerId>) {
        self.last = Some(End { place, at, layer });
    }

    /// Returns true if the current piece is the first of its pass.
    pub const fn is_new(&self) -> bool {
        self.new
    }

    /// Returns true if this is the first piece of the pass that needs weights from the store.
    pub fn is_first(&mut self) -> bool {
        std::mem::take(&mut self.fresh)
    }
}

/// The layers of the first and of the last node that belong to one. llama.cpp ends the names of
/// nodes of a layer with its number (`ffn_out-3`).
pub fn layers_of(graph: &Graph<'_>) -> [Option<LayerId>; 2] {
    let layer = |node: usize| layer_in(&graph.node(node).name());
    [(0..graph.len()).find_map(layer), (0..graph.len()).rev().find_map(layer)]
}

fn layer_in(name: &str) -> Option<LayerId> {
    let name = name.split(" (").next().unwrap_or(name);
    name.rsplit_once('-')?.1.parse().ok().map(LayerId)
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_ggml::testing::graph::place;

    #[test]
    fn layers_are_in_the_names_of_nodes() {
        let layer = |name| layer_in(name).map(|layer| layer.0);
        assert_eq!(layer("l_out-12"), Some(12));
        assert_eq!(layer("Qcur-3 (view)"), Some(3));
        assert_eq!(layer("cache_k_l3 (view) (permuted)"), None);
        assert_eq!([layer("result_output"), layer("node_7"), layer("a-b"), layer("")], [None; 4]);
    }

    /// Reads a sequence of pieces: whether each is the first of a pass, and whether
    /// another backend has computed something before it.
    fn seen(pass: &mut Pass, pieces: &[(usize, std::ops::Range<usize>)]) -> Vec<(bool, bool)> {
        let each = |(whole, nodes): &(usize, std::ops::Range<usize>)| {
            let place = place(*whole, nodes.clone());
            let between = pass.begin(place).is_some();
            let first = pass.is_first();
            pass.end(place, Instant::now(), None);
            (first, between)
        };
        pieces.iter().map(each).collect()
    }

    #[test]
    fn a_pass_is_a_graphs_pieces_in_order() {
        let mut pass = Pass::default();
        let pieces = [(1, 0..4), (1, 4..6), (1, 9..12), (1, 0..4), (1, 9..12), (2, 20..24)];
        let expected =
            [(true, false), (false, false), (false, true), (true, false), (false, true), (true, false)];
        assert_eq!(seen(&mut pass, &pieces), expected);
        // A new graph in the memory of the last one, of which other backends have the first nodes.
        assert_eq!(seen(&mut pass, &[(2, 30..40)]), [(false, true)]);
        pass.announce();
        assert_eq!(seen(&mut pass, &[(2, 50..60), (2, 70..80)]), [(true, false), (false, true)]);
    }

    #[test]
    fn a_piece_that_failed_is_the_end_of_its_pass() {
        let mut pass = Pass::default();
        assert!(pass.begin(place(1, 0..4)).is_none() && pass.is_first());
        assert_eq!(seen(&mut pass, &[(1, 6..8)]), [(true, false)], "the first piece has no end");
    }
}
