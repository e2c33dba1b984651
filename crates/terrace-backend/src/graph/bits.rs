//! Decides whether tokens of a pass have the bits of passes of their own.

/// Most columns that ggml multiplies by dot products; from 8 on, it has tiled kernels.
pub const BY_DOT_PRODUCTS: usize = 7;

/// llama.cpp shows attention whole blocks of this many keys (`llama_kv_cache::get_n_kv`). How keys are
/// dealt to threads, and so the last bits, depend on their number: tokens of a pass that see the same
/// block see what each would see alone.
pub const KEYS: usize = 256;

/// Why a pass's tokens may not have the bits that they have alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unclear {
    /// A product has as many heads, or the like, as the pass has tokens.
    Tokens,
    /// The graph is not made like those of one token.
    Graph,
    /// The number of keys that each of several sequences needs cannot be read from the graph's inputs.
    Keys,
    /// Products with experts are left to ggml, whose kernels depend on the number of rows.
    Experts,
    /// No pass of one token was seen before.
    Unseen,
}
