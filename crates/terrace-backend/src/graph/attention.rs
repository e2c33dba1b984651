//! Attention by kernels of Terrace's own, where these may add in an order of their own.
//!
//! FLASH_ATTN_EXT nodes become custom nodes for the duration of a run. The kernels' order of sums depends on a query
//! and its cache alone, so that such nodes are never divided: tokens of a pass have the bits that they have alone.

use super::custom::{self, CustomNode};
use super::turns::{Claimed, Turns};
use crate::barrier::Barrier;
use crate::scratch::Scratch;
use std::ffi::{c_int, c_void};
use terrace_ggml::cpu::{RawTensor, custom_node};
use terrace_ggml::{DataType, Graph, Op, SavedOp, Tensor};
use terrace_kernels::attention::{Call, Mask, Plan, Rows, Shape};
use terrace_kernels::{CacheType, Isa};

/// Alignment of each thread's scratch, in bytes.
const ALIGN: usize = 64;

/// The attention nodes of a graph.
#[derive(Default)]
pub struct Attentions {
    nodes: Vec<AttentionNode>,
    /// Counters of all nodes: of each as many for its items, and for its merges, as there are threads.
    claimed: Vec<Claimed>,
    shared: Box<Shared>,
}

/// State that the nodes of a graph share.
#[derive(Default)]
struct Shared {
    /// A part for each thread.
    scratch: Scratch,
    /// Results of partitions.
    partial: Scratch,
    barrier: Barrier,
}

struct AttentionNode {
    /// Its index in the graph.
    node: usize,
    saved: Option<SavedOp>,
    plan: Plan,
    /// Scale, largest slope and soft cap, which the node has no room for while it is a custom one.
    params: [f32; 3],
    shared: *const Shared,
    items: *const [Claimed],
    merges: *const [Claimed],
}

impl CustomNode for AttentionNode {
    fn index(&self) -> usize {
        self.node
    }

    fn saved(&mut self) -> &mut Option<SavedOp> {
        &mut self.saved
    }
}

// SAFETY: the pointers are set and used within one `compute` call.
unsafe impl Send for Attentions {}

/// Returns true for nodes that these kernels compute.
pub fn takes(node: Tensor<'_>) -> bool {
    node.op() == Op::FLASH_ATTN_EXT && plan_of(node, 1).is_some()
}

/// Returns true if an attention node has fewer than `tokens` tokens and its keys are all positions of their cache.
pub fn sees_all(node: Tensor<'_>, tokens: usize) -> bool {
    let (Some(queries), Some(keys)) = (node.src(0), node.src(1)) else { return false };
    let [_, of_call, _, streams] = dimensions(queries);
    let [_, positions, _, _] = dimensions(keys);
    of_call * streams < tokens && positions * keys.nb()[1] * dimensions(keys)[3] >= keys.storage().bytes()
}

impl Attentions {
    /// Finds a graph's attention nodes, for `threads` threads.
    pub fn find(&mut self, graph: &Graph<'_>, threads: usize) {
        self.nodes.clear();
        let (mut scratch, mut partial) = (0, 0);
        for i in 0..graph.len() {
            let node = graph.node(i);
            let Some(plan) = (node.op() == Op::FLASH_ATTN_EXT).then(|| plan_of(node, threads)).flatten()
            else {
                continue;
            };
            scratch = scratch.max(part_bytes(&plan));
            partial = partial.max(plan.shared_bytes());
            self.nodes.push(AttentionNode {
                node: i,
                saved: None,
                plan,
                params: [0, 1, 2].map(|i| node.float_param(i)),
                shared: &raw const *self.shared,
                items: &[],
                merges: &[],
            });
        }
        self.claimed.resize_with(self.nodes.len() * threads * 2, Claimed::default);
        for (node, claimed) in self.nodes.iter_mut().zip(self.claimed.chunks(threads * 2)) {
            let (items, merges) = claimed.split_at(threads);
            (node.items, node.merges) = (items, merges);
        }
        self.shared.scratch.reserve(scratch * threads);
        self.shared.partial.reserve(partial);
    }

    /// Forgets the last graph.
    pub fn clear(&mut self) {
        self.nodes.clear();
    }

    /// Number of nodes found.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Turns the nodes into custom nodes until [`Attentions::restore`].
    pub fn rewrite(&mut self, graph: &Graph<'_>) {
        self.claimed.iter_mut().for_each(Claimed::reset);
        custom::rewrite(&mut self.nodes, graph, run);
    }

    /// Puts the nodes back.
    pub fn restore(&mut self, graph: &Graph<'_>) {
        custom::restore(&mut self.nodes, graph);
    }
}

/// The plan of a node's computation; `None` if it is left to ggml.
fn plan_of(node: Tensor<'_>, threads: usize) -> Option<Plan> {
    let float = size_of::<f32>();
    let (queries, keys, values) = (node.src(0)?, node.src(1)?, node.src(2)?);
    let [key_length, tokens, heads, streams] = dimensions(queries);
    let [_, positions, kv_heads, kv_streams] = dimensions(keys);
    let [value_length, ..] = dimensions(values);
    let shape = Shape {
        tokens,
        heads,
        kv_heads,
        streams,
        kv_streams,
        positions,
        key_length,
        value_length,
        keys: cache_type(keys)?,
        values: cache_type(values)?,
    };
    let fits = dimensions(keys)[0] == key_length
        && dimensions(values) == [value_length, positions, kv_heads, kv_streams]
        && dimensions(node) == [value_length, heads, tokens, streams];
    let dense = queries.ty() == DataType::F32
        && node.ty() == DataType::F32
        && queries.nb()[0] == float
        && node.nb()[0] == float
        && keys.nb()[0] == keys.ty().block_bytes()
        && values.nb()[0] == values.ty().block_bytes();
    let masked = node.src(3).is_none_or(|mask| {
        let [seen, rows, of_heads, of_streams] = dimensions(mask);
        mask.ty() == DataType::F16
            && mask.nb()[0] == size_of::<u16>()
            && seen >= positions
            && rows >= tokens
            && of_heads > 0
            && of_streams > 0
    });
    let sinks = node.src(4).is_none_or(|sinks| {
        sinks.ty() == DataType::F32 && sinks.is_contiguous() && dimensions(sinks)[0] == heads
    });
    (fits && dense && masked && sinks).then(|| Plan::new(shape, threads, Isa::best()).ok()).flatten()
}

fn dimensions(tensor: Tensor<'_>) -> [usize; 4] {
    tensor.ne().map(|n| n.unsigned_abs() as usize)
}

fn cache_type(tensor: Tensor<'_>) -> Option<CacheType> {
    const TYPES: [(DataType, CacheType); 9] = [
        (DataType::F32, CacheType::F32),
        (DataType::F16, CacheType::F16),
        (DataType::BF16, CacheType::Bf16),
        (DataType::Q8_0, CacheType::Q8_0),
        (DataType::Q4_0, CacheType::Q4_0),
        (DataType::Q4_1, CacheType::Q4_1),
        (DataType::Q5_0, CacheType::Q5_0),
        (DataType::Q5_1, CacheType::Q5_1),
        (DataType::IQ4_NL, CacheType::Iq4Nl),
    ];
    TYPES.iter().find(|(ty, _)| *ty == tensor.ty()).map(|(_, ty)| *ty)
}

fn part_bytes(plan: &Plan) -> usize {
    plan.scratch_bytes().next_multiple_of(ALIGN)
}

impl AttentionNode {
    /// The call that the node stands for, whose tensors are allocated.
    fn call(&self, dst: Tensor<'_>) -> Option<Call> {
        let [scale, max_bias, softcap] = self.params;
        let mask = dst.src(3).map(|mask| {
            let [_, _, heads, streams] = dimensions(mask);
            Mask { rows: rows(mask), heads, streams }
        });
        let out = rows(dst);
        Some(Call {
            queries: rows(dst.src(0)?),
            keys: rows(dst.src(1)?),
            values: rows(dst.src(2)?),
            mask,
            sinks: dst.src(4).map(|sinks| sinks.data().cast_const().cast()),
            // An output's heads come before its tokens.
            out: Rows { at: out.at.cast_mut(), position: out.head, head: out.position, stream: out.stream },
            scale,
            max_bias,
            softcap,
        })
    }
}

fn rows(tensor: Tensor<'_>) -> Rows<*const u8> {
    let [_, position, head, stream] = tensor.nb();
    Rows { at: tensor.data().cast_const().cast(), position, head, stream }
}

/// The custom node's function.
///
/// # Safety
/// `userdata` is an [`AttentionNode`] of the run; called by ggml on all threads of the run.
unsafe extern "C" fn run(dst: *mut RawTensor, ith: c_int, nth: c_int, userdata: *mut c_void) {
    // SAFETY: `rewrite` put a live AttentionNode there; ggml passes the live node.
    let (node, dst) = unsafe { (&*userdata.cast::<AttentionNode>(), custom_node(dst)) };
    let Some(call) = node.call(dst) else { return };
    let (ith, nth) = (ith.unsigned_abs() as usize, nth.unsigned_abs() as usize);
    let plan = &node.plan;
    // SAFETY: `Attentions` keeps all of these for as long as the graph is computed, and nothing resizes them meanwhile.
    let (shared, items, merges) = unsafe { (&*node.shared, &*node.items, &*node.merges) };
    let partial: *mut u8 = shared.partial.as_ptr().cast();
    // A part of the scratch for each thread that the graph was prepared for, which are those of the run.
    if ith < items.len() {
        let scratch = shared.scratch.as_ptr().cast::<u8>().wrapping_add(ith * part_bytes(plan));
        let mut turns = Turns::of(ith, items);
        while let Some(item) = turns.claim(plan.items()) {
            // SAFETY: the operands are computed, and of the plan's shape; each item is claimed by one thread, whose
            // scratch this is.
            unsafe { plan.run(&call, item, scratch, partial) };
        }
    }
    if plan.merges() > 0 {
        shared.barrier.wait(nth);
        let mut turns = Turns::of(ith, merges);
        while let Some(merge) = turns.claim(plan.merges()) {
            // SAFETY: all items are done (the barrier); each merge is claimed by one thread.
            unsafe { plan.merge(&call, merge, partial) };
        }
    }
}
