//! Grouped-query attention: `softmax(q K^T * scale + mask) V`.
//!
//! # Work items
//! [`Plan::new`] divides a call into items. Any thread may [`Plan::run`] any item; after all of them, and a barrier,
//! come [`Plan::merges`] merges, each again on any thread. Items share a buffer of [`Plan::shared_bytes`]; each
//! thread has scratch of [`Plan::scratch_bytes`].
//!
//! # Partition
//! Positions are divided into partitions of [`PARTITION`], from the first position of the cache on, whatever the
//! number of threads. A partition's tiles of [`TILE`] positions go through an online softmax; partitions are merged
//! in their order. With few rows each partition is an item and the merge comes last; with many, an item walks
//! through all partitions of its rows. Both do the same arithmetic.
//!
//! An item has rows of a key-value head: all query heads of the group, of one token or several. Each key and value is
//! read and converted once for all of them. With few rows it has several key-value heads, whose keys lie side by side
//! in memory and are read in that order. Tiles that the mask hides from every row of an item are skipped.
//!
//! Items of neighbouring numbers read neighbouring positions, and each requests what comes after its own: a thread
//! should run a contiguous range of the items of a plan with merges.
//!
//! # From ggml
//! A `FLASH_ATTN_EXT` node is a call with `queries`, `keys` and `values` from sources 0 to 2: `position`, `head` and
//! `stream` are `nb[1]`, `nb[2]` and `nb[3]`; `key_length` is `ne[0]` of the keys, `value_length` of the values,
//! `tokens`, `heads` and `streams` are `ne[1]`, `ne[2]` and `ne[3]` of the queries, `positions`, `kv_heads` and
//! `kv_streams` those of the keys. The mask is source 3, with `heads` and `streams` its `ne[2]` and `ne[3]`, the sinks
//! are source 4, and `scale`, `max_bias` and `softcap` the first three floats of the parameters. The output's heads
//! come before its tokens: `head`, `position` and `stream` are its `nb[1]`, `nb[2]` and `nb[3]`.
//!
//! # Precision
//! Queries, scores, weights and sums are 32-bit floats, and keys and values are converted to these exactly. With
//! AVX-512 VNNI, rows of quantised types are multiplied as bytes: queries become blocks of 32 bytes with a scale, as
//! they do in ggml, and weights times a block's scale numbers of 16 bits (`byte_values`; tiles of AMX have the same bits).
//! With AMX, and eight heads or more for each key, queries and weights have 16 bits where keys and values are 16-bit
//! floats (`amx`).
//!
//! # Hidden positions
//! A key behind a hidden position may be anything. A value must be finite if another row of the same item sees the
//! tile: it is multiplied by zero.

mod ahead;
#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod byte_values;
mod cache;
mod dots;
mod item;
mod merge;
mod scratch;
mod softmax;
mod tile;
mod values;

use crate::matmul::Product;
use crate::simd::{MOST_LANES, Scalar};
use crate::{CacheType, Isa};
use std::fmt;

/// Positions whose scores are computed together.
pub const TILE: usize = 64;
/// Positions with a softmax of their own.
pub const PARTITION: usize = 256;
/// Most rows of an item.
const ROWS: usize = 64;
/// The same if rows are long, so that an item's buffers stay in the second-level cache.
const LONG_ROWS: usize = 32;
/// Rows that tiles of AMX multiply at a time.
const GROUP_ROWS: usize = 16;
/// Rows of a key-value head up to which memory is what takes time, and not arithmetic.
const FEW_ROWS: usize = 16;
/// Items for each thread below which they are made smaller.
const ITEMS_PER_THREAD: usize = 2;
/// Floats before a partial result's row: its maximum and its sum, and the rest of a cache line.
const HEADER: usize = 16;

/// Sizes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Tokens of each stream.
    pub tokens: usize,
    /// Query heads.
    pub heads: usize,
    /// Heads of keys and values, of which `heads` is a multiple.
    pub kv_heads: usize,
    /// Independent sequences, each with its own queries.
    pub streams: usize,
    /// Sequences of keys and values, of which `streams` is a multiple.
    pub kv_streams: usize,
    /// Positions of the cache.
    pub positions: usize,
    /// Values of a query and of a key.
    pub key_length: usize,
    /// Values of a value and of an output row.
    pub value_length: usize,
    /// Type of the keys.
    pub keys: CacheType,
    /// Type of the values.
    pub values: CacheType,
}

impl Shape {
    /// Makes the shape of one sequence, whose keys and values have the same length and type.
    pub const fn of_one(
        tokens: usize,
        heads: usize,
        kv_heads: usize,
        positions: usize,
        length: usize,
        ty: CacheType,
    ) -> Self {
        Self {
            tokens,
            heads,
            kv_heads,
            streams: 1,
            kv_streams: 1,
            positions,
            key_length: length,
            value_length: length,
            keys: ty,
            values: ty,
        }
    }
}

/// Rows in memory, with distances in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Rows<P> {
    /// The first row.
    pub at: P,
    /// From one position, or token, to the next.
    pub position: usize,
    /// From one head to the next.
    pub head: usize,
    /// From one stream to the next.
    pub stream: usize,
}

/// Additions to the scores: a binary16 for each token and position.
#[derive(Clone, Copy, Debug)]
pub struct Mask {
    /// A row for each token; minus infinity hides a position.
    pub rows: Rows<*const u8>,
    /// Heads with rows of their own; head `h` uses those of `h % heads`.
    pub heads: usize,
    /// Streams with rows of their own.
    pub streams: usize,
}

/// Buffers and parameters of a call.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Queries: floats.
    pub queries: Rows<*const u8>,
    /// Keys, of type [`Shape::keys`].
    pub keys: Rows<*const u8>,
    /// Values, of type [`Shape::values`].
    pub values: Rows<*const u8>,
    /// Added to the scores.
    pub mask: Option<Mask>,
    /// A float for each query head: the score of a position without a value.
    pub sinks: Option<*const f32>,
    /// Output rows: floats.
    pub out: Rows<*mut u8>,
    /// Factor of the scores.
    pub scale: f32,
    /// Largest slope of ALiBi, or 0.
    pub max_bias: f32,
    /// Scores become `softcap * tanh(score / softcap)` unless it is 0.
    pub softcap: f32,
}

// SAFETY: pointers whose use is up to the functions that are given a call.
unsafe impl Send for Call {}
// SAFETY: as above.
unsafe impl Sync for Call {}

/// A shape that has no kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsupported(&'static str);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attention without a kernel: {}", self.0)
    }
}

impl std::error::Error for Unsupported {}

/// Division of a call.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    shape: Shape,
    isa: Isa,
    /// Most rows of an item with one key-value head.
    rows: usize,
    /// Items with the rows of a key-value head and stream.
    blocks: usize,
    /// Key-value heads of an item.
    heads: usize,
    partitions: usize,
    /// Product of keys as bytes, if there is one.
    byte_keys: Option<Product>,
    /// True if values are multiplied as bytes.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "kernels of x86-64 read it"))]
    byte_values: bool,
    /// True if tiles of AMX multiply values as bytes.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "kernels of x86-64 read it"))]
    byte_tiles: bool,
    /// True if tiles of AMX multiply keys and values that are floats.
    tiles: bool,
    /// True if each partition is an item.
    divided: bool,
}

impl Plan {
    /// Divides calls of this shape for so many threads. The number of threads has no influence on results.
    ///
    /// # Errors
    /// If the shape is not that of an attention, or rows are not whole blocks of their type.
    pub fn new(shape: Shape, threads: usize, isa: Isa) -> Result<Self, Unsupported> {
        let Shape { tokens, heads, kv_heads, streams, kv_streams, positions, .. } = shape;
        if [tokens, heads, kv_heads, streams, kv_streams, positions].contains(&0) {
            return Err(Unsupported("an empty dimension"));
        }
        if heads % kv_heads != 0 || streams % kv_streams != 0 {
            return Err(Unsupported("heads or streams that are not whole groups"));
        }
        if shape.key_length == 0 || shape.value_length == 0 {
            return Err(Unsupported("empty rows"));
        }
        let whole = |ty: CacheType, n: usize| !ty.is_quantised() || n.is_multiple_of(crate::blocks::BLOCK);
        if !whole(shape.keys, shape.key_length) || !whole(shape.values, shape.value_length) {
            return Err(Unsupported("rows that are not whole blocks"));
        }
        let rows = if shape.key_length + shape.value_length > 512 { LONG_ROWS } else { ROWS };
        let blocks = (tokens * (heads / kv_heads)).div_ceil(rows);
        let partitions = positions.div_ceil(PARTITION);
        // Few rows: all heads of some positions in each item, so that memory is read from one end to the other.
        let few = tokens * (heads / kv_heads) <= FEW_ROWS;
        let divided = partitions > 1 && (few || streams * kv_heads * blocks < ITEMS_PER_THREAD * threads);
        let others = streams * blocks * if divided { partitions } else { 1 };
        #[cfg(target_arch = "x86_64")]
        let tiles = isa == Isa::Amx && amx::computes(&shape);
        #[cfg(not(target_arch = "x86_64"))]
        let tiles = false;
        let of_head = (tokens * (heads / kv_heads)).min(rows);
        // Groups of tiles have 16 rows, of which a head may have one.
        let fit = if tiles { 2 * rows / of_head.next_multiple_of(GROUP_ROWS) } else { rows };
        let heads = (1..=fit.min(rows / of_head))
            .rev()
            .find(|n| kv_heads % n == 0 && kv_heads / n * others >= ITEMS_PER_THREAD * threads)
            .unwrap_or(1);
        // Vectors: tiles of AMX, which have the same bits, would pack the queries for each 32 keys.
        let byte_keys = shape
            .keys
            .weights()
            .filter(|_| isa.has_vnni())
            .and_then(|ty| Product::new(ty, shape.key_length, isa.min(Isa::Avx512Bf16)));
        let byte_values = shape.values.is_quantised() && isa.has_vnni();
        // The bits are the same with few rows, which vectors multiply.
        let byte_tiles = byte_values && isa == Isa::Amx && of_head >= GROUP_ROWS;
        let plan = Self {
            shape,
            isa,
            rows,
            blocks,
            heads,
            partitions,
            byte_keys,
            byte_values,
            byte_tiles,
            tiles,
            divided,
        };
        Ok(plan)
    }

    /// Number of items.
    pub const fn items(&self) -> usize {
        let whole = self.shape.streams * (self.shape.kv_heads / self.heads) * self.blocks;
        if self.divided { whole * self.partitions } else { whole }
    }

    /// Number of merges after the items; 0 if items finish their rows.
    pub const fn merges(&self) -> usize {
        if self.divided { self.shape.streams * self.shape.heads * self.shape.tokens } else { 0 }
    }

    /// Bytes of each thread's scratch memory.
    pub const fn scratch_bytes(&self) -> usize {
        4 * scratch::Scratch::floats(self)
    }

    /// Bytes of the memory that all threads share.
    pub const fn shared_bytes(&self) -> usize {
        4 * self.merges() * self.partitions * self.partial()
    }

    /// Computes an item.
    ///
    /// # Safety
    /// All rows of the call are valid for its shape, and nothing else accesses its outputs. `scratch` is valid for
    /// [`Plan::scratch_bytes`] that no other thread uses, `shared` for [`Plan::shared_bytes`]; both are aligned to 64
    /// bytes. The machine has the instructions of the plan's [`Isa`], and the item is computed by one thread.
    pub unsafe fn run(&self, call: &Call, item: usize, scratch: *mut u8, shared: *mut u8) {
        debug_assert!(item < self.items(), "an item of the plan");
        let (scratch, shared) = (scratch.cast(), shared.cast());
        // SAFETY: the caller's contract.
        unsafe {
            match self.isa {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => run_avx2(self, call, item, scratch, shared),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Bf16 | Isa::Amx => {
                    run_avx512(self, call, item, scratch, shared)
                }
                #[cfg(target_arch = "aarch64")]
                Isa::Neon | Isa::NeonDot | Isa::NeonI8mm => {
                    item::run::<crate::simd::Neon>(self, call, item, scratch, shared);
                }
                _ => item::run::<Scalar>(self, call, item, scratch, shared),
            }
        }
    }

    /// Merges the partitions of a row, after all items.
    ///
    /// # Safety
    /// As for [`Plan::run`], with the shared memory that all items wrote.
    pub unsafe fn merge(&self, call: &Call, index: usize, shared: *mut u8) {
        debug_assert!(index < self.merges(), "a merge of the plan");
        // SAFETY: the caller's contract.
        unsafe {
            match self.isa {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => merge_avx2(self, call, index, shared.cast()),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Bf16 | Isa::Amx => {
                    merge_avx512(self, call, index, shared.cast());
                }
                #[cfg(target_arch = "aarch64")]
                Isa::Neon | Isa::NeonDot | Isa::NeonI8mm => {
                    merge::run::<crate::simd::Neon>(self, call, index, shared.cast());
                }
                _ => merge::run::<Scalar>(self, call, index, shared.cast()),
            }
        }
    }

    const fn group(&self) -> usize {
        self.shape.heads / self.shape.kv_heads
    }

    /// Floats of a key in scratch.
    const fn key_floats(&self) -> usize {
        self.shape.key_length.next_multiple_of(MOST_LANES)
    }

    /// Floats of a value in scratch.
    const fn value_floats(&self) -> usize {
        self.shape.value_length.next_multiple_of(MOST_LANES)
    }

    /// Floats of a row's partial result.
    const fn partial(&self) -> usize {
        HEADER + self.value_floats()
    }
}

impl<P> Rows<P> {
    /// Distance of a row from the first.
    const fn offset(&self, position: usize, head: usize, stream: usize) -> usize {
        position * self.position + head * self.head + stream * self.stream
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn run_avx2(plan: &Plan, call: &Call, item: usize, scratch: *mut f32, shared: *mut f32) {
    // SAFETY: the caller's contract.
    unsafe { item::run::<crate::simd::Avx2>(plan, call, item, scratch, shared) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn run_avx512(plan: &Plan, call: &Call, item: usize, scratch: *mut f32, shared: *mut f32) {
    // SAFETY: the caller's contract.
    unsafe { item::run::<crate::simd::Avx512>(plan, call, item, scratch, shared) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn merge_avx2(plan: &Plan, call: &Call, index: usize, shared: *mut f32) {
    // SAFETY: the caller's contract.
    unsafe { merge::run::<crate::simd::Avx2>(plan, call, index, shared) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn merge_avx512(plan: &Plan, call: &Call, index: usize, shared: *mut f32) {
    // SAFETY: the caller's contract.
    unsafe { merge::run::<crate::simd::Avx512>(plan, call, index, shared) }
}
