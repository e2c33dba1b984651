//! Pieces of graphs, ready to be computed: a graph that llama.cpp computes again for the next token
//! is taken apart once.

use super::attention::Attentions;
use super::choices::Choices;
use super::glus::Glus;
use super::pass::layers_of;
use super::products::Products;
use super::scan::Nodes;
use super::skip::LayerSkips;
use super::tiles::Tiles;
use crate::error::BackendError;
use crate::layout::Layout;
use crate::lossy::LossyRouting;
use crate::memory::interleaved;
use crate::memory::weights::Weights;
use crate::passes::Passes;
use std::num::NonZeroU64;
use std::sync::Arc;
use terrace_ggml::{Divided, Graph};
use terrace_model::LayerId;

/// Maximum number of pieces that are kept. A graph has a few for each layer at most.
const MAX_PIECES: usize = 1024;

/// A piece of a graph, and everything that was found in it.
#[derive(Default)]
pub struct Piece {
    /// Properties that it was made for; `None` if it cannot be used again.
    key: Option<Key>,
    /// The model, even if the piece needs no weights from the store.
    pub model: Option<Arc<Weights>>,
    /// The model, if the piece needs weights from its store or has experts with copies.
    pub weights: Option<Arc<Weights>>,
    /// The layout that the node lists point into.
    pub layout: Option<Arc<Layout>>,
    /// The layers of its first and its last node that belong to one.
    pub layers: [Option<LayerId>; 2],
    pub nodes: Nodes,
    pub products: Products,
    pub attentions: Attentions,
    pub tiles: Tiles,
    pub glus: Glus,
    pub choices: Choices,
    pub skips: LayerSkips,
    /// Its nodes, if some are divided.
    pub divided: Option<Divided>,
}

/// Properties on which a piece depends.
struct Key {
    graph: NonZeroU64,
    threads: usize,
    /// The model's skipped layers.
    skipped: Arc<[u32]>,
    /// Whose bits its tokens get.
    passes: Passes,
    /// Permitted deviations of tokens from the router's choice.
    lossy: Option<LossyRouting>,
    /// Changes of what is interleaved before.
    interleaved: u64,
}

impl Piece {
    /// Returns true if this was made from the graph, and nothing has changed since. ggml numbers a graph
    /// again whenever it makes one, so a number never means two graphs, whatever their addresses.
    fn suits(&self, graph: &Graph<'_>, threads: usize) -> bool {
        let Some(key) = &self.key else { return false };
        let same = |model: &Arc<Weights>| {
            Arc::ptr_eq(&model.skipped_layers(), &key.skipped)
                && model.passes() == key.passes
                && model.lossy() == key.lossy
        };
        let placed =
            |layout| self.weights.as_ref().is_none_or(|weights| Arc::ptr_eq(&weights.layout(), layout));
        graph.uid() == Some(key.graph)
            && key.threads == threads
            && key.interleaved == interleaved::changes()
            && self.model.as_ref().is_none_or(same)
            && self.layout.as_ref().is_none_or(placed)
    }

    /// Forgets the last graph, but keeps its buffers.
    fn clear(&mut self) {
        self.key = None;
        (self.model, self.weights, self.layout) = (None, None, None);
        self.nodes.clear();
        self.products.clear();
        self.attentions.clear();
        self.tiles.clear();
        self.glus.clear();
        self.choices.clear();
        self.skips.clear();
        self.divided = None;
    }

    /// Notes that everything was found in the graph, so that it can be used again.
    pub fn complete(&mut self, graph: &Graph<'_>, threads: usize, skipped: Arc<[u32]>) {
        self.layers = layers_of(graph);
        let passes = self.model.as_ref().map_or(Passes::One, |model| model.passes());
        let lossy = self.model.as_ref().and_then(|model| model.lossy());
        let interleaved = interleaved::changes();
        self.key = graph.uid().map(|graph| Key { graph, threads, skipped, passes, lossy, interleaved });
    }
}

/// The pieces of the graph that is being computed, in order.
#[derive(Default)]
pub struct Pieces {
    pieces: Vec<Piece>,
    /// Cleared pieces, for their buffers.
    spare: Vec<Piece>,
    current: usize,
}

impl Pieces {
    /// Makes the piece that was made from this graph the current one. Returns whether there is one.
    pub fn find(&mut self, graph: &Graph<'_>, threads: usize) -> bool {
        let count = self.pieces.len();
        let in_turn = (self.current + 1..self.current + 1 + count).map(|index| index % count);
        let found = in_turn.into_iter().find(|&index| self.pieces[index].suits(graph, threads));
        self.current = found.unwrap_or(self.current);
        found.is_some()
    }

    /// Makes an empty piece the current one. `fresh` tells that it begins a pass: the graph is a new
    /// one then, and the pieces of the last one are not computed again.
    pub fn add(&mut self, fresh: bool) -> &mut Piece {
        let again = |piece: &Piece| piece.key.is_some();
        if fresh || self.pieces.len() == MAX_PIECES || !self.pieces.last().is_none_or(again) {
            let keep = if fresh || self.pieces.len() == MAX_PIECES { 0 } else { self.pieces.len() - 1 };
            for mut piece in self.pieces.drain(keep..) {
                piece.clear();
                self.spare.push(piece);
            }
        }
        self.current = self.pieces.len();
        self.pieces.push(self.spare.pop().unwrap_or_default());
        &mut self.pieces[self.current]
    }

    /// The current piece.
    ///
    /// # Panics
    /// Before the first piece was added.
    pub fn current(&mut self) -> &mut Piece {
        &mut self.pieces[self.current]
    }

    /// Lets the current piece's last MoE block know the one that follows in a later piece, for guesses
    /// of its experts. Holds until a piece is added.
    pub fn link(&mut self) {
        let (until, after) = self.pieces.split_at_mut(self.current + 1);
        let current = &mut until[self.current];
        let (layout, weights) = (&current.layout, &current.weights);
        let Some(last) = current.nodes.fused.last_mut() else { return };
        let same = |piece: &&Piece| {
            let layouts = layout.as_ref().zip(piece.layout.as_ref());
            let models = weights.as_ref().zip(piece.weights.as_ref());
            layouts.is_some_and(|(a, b)| Arc::ptr_eq(a, b)) && models.is_some_and(|(a, b)| Arc::ptr_eq(a, b))
        };
        let next = after.iter().filter(same).find_map(|piece| piece.nodes.fused.first());
        last.next = next.map_or(std::ptr::null(), std::ptr::from_ref);
    }

    /// Starts reading the matrices that are needed first after the current piece, so that the disk
    /// works while other devices compute, or while the next token is chosen.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn prefetch_next(&mut self, weights: &Arc<Weights>) -> Result<(), BackendError> {
        let (until, after) = self.pieces.split_at_mut(self.current + 1);
        let uses = |piece: &&mut Piece| piece.weights.as_ref().is_some_and(|own| Arc::ptr_eq(own, weights));
        let Some(next) = after.iter_mut().chain(until).find(uses) else { return Ok(()) };
        let mut store = weights.store();
        let room = next.nodes.room_for_matrices(&store) / 2;
        next.nodes.matrices.prefetch_first(&mut store, room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_ggml::testing::graph::TestGraph;

    /// A graph with this number, as ggml's scheduler gives one to each piece.
    fn numbered(graph: &mut TestGraph, number: u64) -> Graph<'_> {
        graph.set_uid(number);
        graph.graph()
    }

    fn graph() -> TestGraph {
        let mut graph = TestGraph::new();
        graph.leaf("a", &[1.0, 2.0]);
        graph.leaf("b", &[3.0, 4.0]);
        graph.add("l_out-3", "a", "b");
        graph
    }

    fn take(pieces: &mut Pieces, graph: &Graph<'_>, fresh: bool) -> bool {
        let found = pieces.find(graph, 1);
        if !found {
            pieces.add(fresh).complete(graph, 1, Arc::new([]));
        }
        found
    }

    #[test]
    fn pieces_are_found_again_by_their_numbers() {
        let (mut pieces, mut graph) = (Pieces::default(), graph());
        for (number, fresh) in [(5, true), (6, false), (7, false)] {
            assert!(!take(&mut pieces, &numbered(&mut graph, number), fresh));
        }
        for number in [5, 6, 7, 5, 7, 6] {
            assert!(take(&mut pieces, &numbered(&mut graph, number), number == 5));
        }
        assert!(!pieces.find(&numbered(&mut graph, 5), 2), "other threads share the work otherwise");
        assert_eq!(pieces.current().layers, [Some(LayerId(3)); 2]);
        assert_eq!(pieces.pieces.len(), 3);
    }

    /// llama.cpp makes each new graph in the memory of the last one.
    #[test]
    fn a_graph_that_changes_at_the_same_address_is_another_one() {
        let (mut pieces, mut graph) = (Pieces::default(), graph());
        assert!(!take(&mut pieces, &numbered(&mut graph, 5), true));
        assert!(take(&mut pieces, &numbered(&mut graph, 5), true));
        graph.mul("c", "a", "b");
        assert!(!take(&mut pieces, &numbered(&mut graph, 6), true));
        assert_eq!(pieces.pieces.len(), 1, "the last graph's pieces are gone");
        assert!(!take(&mut pieces, &numbered(&mut graph, 5), true), "and would not be found again");
        // Without a number, nothing tells whether a graph has changed.
        assert!(!take(&mut pieces, &numbered(&mut graph, 0), true));
        assert!(!take(&mut pieces, &numbered(&mut graph, 0), false));
        assert_eq!(pieces.pieces.len(), 1);
    }

    #[test]
    fn their_number_is_bounded() {
        let (mut pieces, mut graph) = (Pieces::default(), graph());
        for number in 1..3 * MAX_PIECES as u64 {
            assert!(!take(&mut pieces, &numbered(&mut graph, number), false));
            assert!(pieces.pieces.len() + pieces.spare.len() <= MAX_PIECES);
        }
    }
}
