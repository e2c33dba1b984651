//! The nodes of a graph that choose experts: while a graph of one token runs, custom nodes stand in
//! their place.
//!
//! llama.cpp sorts all scores (ARGSORT); `ids` is a view of the first top-k of the sorted numbers, and
//! GET_ROWS looks up the weights of these in the untouched probabilities, before anything uses the ids.
//! So another order changes ids and weights alike, and normalisation, biases and group masks follow; and
//! what is left out is left out in the place of GET_ROWS, where ids and weights are both at hand.

use super::tally::LossyTally;
use super::{Choice, LossyRouting, LowChoice};
use crate::block::MATRICES;
use crate::lanes::AnyLanes;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use terrace_ggml::backend::parked;
use terrace_ggml::cpu::{RawTensor, Stop, custom_node};
use terrace_ggml::{DataType, Graph, Op, SavedOp, Tensor};
use terrace_model::LayerId;
use terrace_store::{BlockId, Store};

/// ggml's number of the descending order.
const DESCENDING: i32 = 1;

/// An MoE block whose experts come from the store.
pub struct Subject {
    /// The router's choice, `[top_k, tokens]`.
    pub ids: *mut RawTensor,
    /// The first node that uses it.
    pub used: usize,
    /// The first blocks of its matrices.
    pub matrices: [Option<BlockId>; MATRICES],
    /// Its layer, if the weights' names have one.
    pub layer: Option<LayerId>,
    /// Index of its layer among those with lanes.
    pub hot: Option<usize>,
}

/// The lossy nodes of a piece of a graph. Reused from graph to graph.
#[derive(Default)]
pub struct LossyNodes {
    nodes: Vec<LossyNode>,
    run: LossyRun,
}

/// State that all nodes share while a graph runs. Thread 0 alone uses it.
struct LossyRun {
    routing: LossyRouting,
    tally: Arc<LossyTally>,
    store: *const Store,
    /// `None` if there are no lanes.
    lanes: Option<*const AnyLanes>,
    stop: *const Stop,
    choice: Choice,
    ids: Vec<i32>,
    weights: Vec<f32>,
    low: LowChoice,
}

struct LossyNode {
    /// The node that sorts the scores, and the one that looks up weights, if anything is to be left out or read in
    /// fewer bits.
    sorts: usize,
    weighs: Option<usize>,
    /// The router's choice.
    ids: *mut RawTensor,
    top_k: usize,
    /// True if the scores are the probabilities of a softmax; otherwise the weights may become some.
    probabilities: bool,
    logits: bool,
    matrices: [Option<BlockId>; MATRICES],
    hot: Option<usize>,
    /// The deviations that are permitted in its layer.
    routing: LossyRouting,
    run: *mut LossyRun,
    saved: [Option<SavedOp>; 2],
}

// SAFETY: the pointers are set and used within one `compute` call.
unsafe impl Send for LossyNodes {}

impl LossyNodes {
    /// Forgets the last graph.
    pub fn clear(&mut self) {
        self.nodes.clear();
    }

    /// Finds the nodes that choose the experts of these blocks, in a graph of one token. Blocks whose
    /// nodes are not recognised keep the router's choice.
    pub fn find(
        &mut self,
        graph: &Graph<'_>,
        subjects: impl IntoIterator<Item = Subject>,
        routing: LossyRouting,
        tally: Arc<LossyTally>,
    ) {
        self.nodes.clear();
        self.run.routing = routing;
        self.run.low = LowChoice { tally: Arc::clone(&tally), ..LowChoice::default() };
        self.run.tally = tally;
        let subjects: Vec<Subject> = subjects.into_iter().collect();
        // SAFETY: the graph's tensors.
        let ids_of = |subject: &Subject| unsafe { custom_node(subject.ids) };
        // The last layer of a prompt computes one token, too.
        if subjects.iter().any(|subject| ids_of(subject).ne()[1] != 1) {
            return;
        }
        for subject in subjects {
            let ids = ids_of(&subject);
            match LossyNode::of(graph, ids, &subject, routing.of_layer(subject.layer)) {
                Some(node) => self.nodes.push(node),
                None => {
                    tracing::debug!(ids = ids.name(), "the experts of this layer are chosen without loss")
                }
            }
        }
    }

    /// The routing of the nodes; `None` if it is exact.
    pub fn routing(&self) -> Option<LossyRouting> {
        (!self.nodes.is_empty()).then_some(self.run.routing)
    }

    /// Returns true if the weights of the experts with these ids are known before they are read.
    pub fn weighs(&self, ids: *mut RawTensor) -> bool {
        self.nodes.iter().any(|node| node.ids == ids && node.weighs.is_some())
    }

    /// The experts that may be read in fewer bits, as the nodes choose them; null if none may. Valid
    /// while this does not move, and used by thread 0 alone.
    pub fn low(&self) -> *const LowChoice {
        let any = self.run.routing.low > 0.0 && self.nodes.iter().any(|node| node.weighs.is_some());
        if any { &raw const self.run.low } else { std::ptr::null() }
    }

    /// Puts custom nodes in place, until [`LossyNodes::restore`]; what is lent must not move until then.
    pub fn rewrite(
        &mut self,
        graph: &Graph<'_>,
        store: *const Store,
        lanes: Option<*const AnyLanes>,
        stop: &Stop,
    ) {
        let Self { nodes, run: shared } = self;
        (shared.store, shared.lanes, shared.stop) = (store, lanes, stop);
        let shared = &raw mut *shared;
        for node in nodes {
            node.run = shared;
            let this = (&raw mut *node).cast();
            node.saved[0] = Some(graph.node(node.sorts).make_custom(sort, this));
            node.saved[1] = node.weighs.map(|weighs| graph.node(weighs).make_custom(weigh, this));
        }
    }

    /// Puts the nodes back.
    pub fn restore(&mut self, graph: &Graph<'_>) {
        for node in &mut self.nodes {
            let [sorts, weighs] = &mut node.saved;
            if let Some(saved) = sorts.take() {
                graph.node(node.sorts).restore(saved);
            }
            if let Some((saved, weighs)) = weighs.take().zip(node.weighs) {
                graph.node(weighs).restore(saved);
            }
        }
    }
}

impl LossyNode {
    /// Recognises the nodes by their structure.
    fn of<'g>(graph: &Graph<'g>, ids: Tensor<'g>, subject: &Subject, routing: LossyRouting) -> Option<Self> {
        let sorted = ids.storage();
        let scores = sorted.src(0)?;
        let floats = |tensor: Tensor<'_>| tensor.ty() == DataType::F32 && tensor.nb()[0] == size_of::<f32>();
        let one = |tensor: Tensor<'_>| tensor.ne()[1..] == [1, 1, 1];
        let known = sorted.op() == Op::ARGSORT
            && sorted.int_param(0) == DESCENDING
            && ids.view_offset() == 0
            && ids.nb()[0] == size_of::<i32>()
            && one(sorted)
            && one(scores)
            && floats(scores);
        let sorts = (0..subject.used).find(|&node| graph.node(node) == sorted).filter(|_| known)?;
        let mut weighs = None;
        let mut logits = false;
        for node in sorts + 1..subject.used {
            let node_at = graph.node(node);
            if node_at.op().is_view() {
                continue;
            }
            let uses_ids = node_at.sources().any(|source| source.storage() == sorted);
            if weighs.is_none() && uses_ids {
                let [width, places, rest @ ..] = node_at.ne();
                let weights = node_at.op() == Op::GET_ROWS
                    && node_at.src(1) == Some(ids)
                    && node_at.src(0).is_some_and(|all| floats(all) && all.nb()[1] == size_of::<f32>())
                    && floats(node_at)
                    && (width, places, rest) == (1, ids.ne()[0], [1, 1])
                    && node_at.nb()[1] == size_of::<f32>();
                // Whatever it is, it reads the ids before anything can be left out.
                weighs = Some(weights.then_some(node));
            } else if let Some(Some(weighs)) = weighs {
                let of_weights = |source: Tensor<'_>| source.storage() == graph.node(weighs).storage();
                logits |= node_at.op() == Op::SOFT_MAX && node_at.src(0).is_some_and(of_weights);
            }
        }
        let weighs = weighs.flatten().filter(|_| routing.drop > 0.0 || routing.low > 0.0);
        if routing.prior <= 0.0 && weighs.is_none() {
            return None;
        }
        let mut scored = scores;
        while scored.op().is_view() && scored.src(0).is_some() {
            scored = scored.src(0)?;
        }
        Some(Self {
            sorts,
            weighs,
            ids: ids.as_ptr(),
            top_k: usize::try_from(ids.ne()[0]).ok()?,
            probabilities: scored.op() == Op::SOFT_MAX,
            logits,
            matrices: subject.matrices,
            hot: subject.hot,
            routing,
            run: std::ptr::null_mut(),
            saved: [None, None],
        })
    }
}

impl LossyRun {
    /// Returns true if an expert of a node costs no read.
    fn is_here(store: &Store, lanes: Option<&AnyLanes>, node: &LossyNode, expert: u32) -> bool {
        let copied = node.hot.zip(lanes).is_some_and(|(hot, lanes)| lanes.has(hot, expert));
        copied || node.matrices.iter().flatten().all(|first| store.is_resident(BlockId(first.0 + expert)))
    }

    /// Ends the graph's run with a parked error.
    fn fail(&self) {
        // SAFETY: lent for the run.
        unsafe { (*self.stop).set() };
    }
}

impl Default for LossyRun {
    fn default() -> Self {
        Self {
            routing: LossyRouting::default(),
            tally: Arc::default(),
            store: std::ptr::null(),
            lanes: None,
            stop: std::ptr::null(),
            choice: Choice::default(),
            ids: Vec::new(),
            weights: Vec::new(),
            low: LowChoice::default(),
        }
    }
}

/// Runs in place of the node that sorts scores: thread 0 chooses, the other threads do nothing.
///
/// # Safety
/// `userdata` is a [`LossyNode`] between `rewrite` and `restore`.
unsafe extern "C" fn sort(dst: *mut RawTensor, ith: c_int, _nth: c_int, userdata: *mut c_void) {
    if ith != 0 {
        return;
    }
    // SAFETY: `rewrite` put a live node there, and thread 0 alone uses what nodes share; ggml passes the
    // live node.
    let (node, dst) = unsafe { (&*userdata.cast::<LossyNode>(), custom_node(dst)) };
    // SAFETY: as above: it lives beside the nodes.
    let run = unsafe { &mut *node.run };
    let done = parked::guard("a lossy choice", false, || {
        let scores = dst.src(0).expect("ARGSORT has scores");
        // SAFETY: `of` checked that it is one row of floats; it was computed before this node.
        let scores = unsafe { row::<f32>(scores) };
        // SAFETY: lent for the run; no other node runs meanwhile.
        let (store, lanes) = unsafe { (&*run.store, run.lanes.map(|lanes| &*lanes)) };
        let LossyRun { choice, tally, .. } = run;
        let is_here = |expert| LossyRun::is_here(store, lanes, node, expert);
        let substituted =
            choice.choose(scores.iter().copied(), node.probabilities, node.top_k, &node.routing, is_here);
        tally.chose(node.top_k, substituted);
        // SAFETY: one row of as many I32 as there are scores, which this node computes.
        let sorted = unsafe { std::slice::from_raw_parts_mut(dst.data().cast::<i32>(), scores.len()) };
        for (to, &expert) in sorted.iter_mut().zip(choice.order()) {
            *to = expert.cast_signed();
        }
        true
    });
    if !done {
        run.fail();
    }
}

/// Runs in place of the node that looks up weights: thread 0 looks them up and leaves experts out, the
/// other threads do nothing.
///
/// # Safety
/// As [`sort`].
unsafe extern "C" fn weigh(dst: *mut RawTensor, ith: c_int, _nth: c_int, userdata: *mut c_void) {
    if ith != 0 {
        return;
    }
    // SAFETY: as in `sort`.
    let (node, dst) = unsafe { (&*userdata.cast::<LossyNode>(), custom_node(dst)) };
    // SAFETY: as in `sort`.
    let run = unsafe { &mut *node.run };
    let done = parked::guard("lossy weights", false, || {
        let (table, all) =
            (dst.src(0).expect("GET_ROWS has a table"), dst.src(1).expect("GET_ROWS has indices"));
        // SAFETY: `of` checked that the table has one float for each expert, without gaps, and that the
        // ids are a row; both were computed before this node.
        let (table, chosen) = unsafe {
            let experts = table.ne()[1].unsigned_abs() as usize;
            (std::slice::from_raw_parts(table.data().cast::<f32>(), experts), row::<i32>(all))
        };
        // SAFETY: as in `sort`.
        let (store, lanes) = unsafe { (&*run.store, run.lanes.map(|lanes| &*lanes)) };
        let LossyRun { choice, tally, ids, weights, low, .. } = run;
        let routing = &node.routing;
        ids.clear();
        ids.extend_from_slice(chosen);
        weights.clear();
        weights.extend(ids.iter().map(|&id| table[id.unsigned_abs() as usize]));
        let is_here = |expert| LossyRun::is_here(store, lanes, node, expert);
        if routing.drop > 0.0 {
            tally.dropped(choice.drop(ids, weights, node.logits, routing, is_here));
        }
        if routing.low > 0.0 {
            low.ids = node.ids;
            choice.light(ids, weights, node.logits, routing, &mut low.experts);
        }
        // SAFETY: `of` checked that the node is a row of a float for each id. The ids are written to in
        // place: the view's memory is the sorting node's, whose other users come later.
        unsafe {
            dst.data().cast::<f32>().copy_from_nonoverlapping(weights.as_ptr(), weights.len());
            all.data().cast::<i32>().copy_from_nonoverlapping(ids.as_ptr(), ids.len());
        }
        true
    });
    if !done {
        run.fail();
    }
}

/// The first row of a tensor.
///
/// # Safety
/// `T` is the tensor's type, its elements lie without gaps, and it has been computed.
unsafe fn row<'g, T>(tensor: Tensor<'g>) -> &'g [T] {
    let len = tensor.ne()[0].unsigned_abs() as usize;
    // SAFETY: the caller's contract.
    unsafe { std::slice::from_raw_parts(tensor.data().cast::<T>(), len) }
}
