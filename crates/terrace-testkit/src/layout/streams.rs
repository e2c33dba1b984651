//! What only `qwen4exp` has: residual streams side by side, sparse attention, and a table of hashed n-grams.

use super::{Block, CONV, TABLE};
use crate::spec::Spec;
use crate::tensor::{Class, Fill, Tensors};
use crate::vocab::Vocabulary;
use terrace_ggml::gguf::write::Value;

/// Residual streams.
const STREAMS: u32 = 4;
/// Rank of the matrices that mix them.
const RANK: u32 = 256;
/// Sparse attention: heads and elements of the keys that choose positions, positions that are pooled, and positions that are
/// chosen.
const INDEX_HEADS: u32 = 4;
const INDEX_HEAD: u32 = 128;
const POOLED: u32 = 4;
const CHOSEN: u32 = 2048;
/// The layer that adds rows of the table; it has a delta net.
const TABLE_LAYER: u32 = 0;
/// Tokens of the longest n-gram, and hashes of each length from two on.
const NGRAM: u32 = 3;
const HASHES_PER_LENGTH: u32 = Spec::HASHES / (NGRAM - 1);
/// Multipliers of the tokens of an n-gram before they are mixed by XOR.
const MULTIPLIERS: [u64; NGRAM as usize] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d];

/// Adds the table: a row for each value of a hash.
pub(super) fn table(spec: &Spec, out: &mut Tensors<'_>) {
    let unused = spec.hashed_rows < spec.table_rows / Spec::HASHES;
    let fill = if unused { Fill::Hole } else { Fill::Normal { mean: 0.0, std: 1.0 } };
    out.add(TABLE.into(), Class::Other, &[spec.embd / Spec::HASHES, spec.table_rows], fill);
}

/// Adds what makes one stream of all before the head.
pub(super) fn output(spec: &Spec, out: &mut Tensors<'_>) {
    mixer(spec, out, |part| format!("output_hc_{part}.weight"));
}

fn mixer(spec: &Spec, out: &mut Tensors<'_>, name: impl Fn(&str) -> String) {
    let all = STREAMS * spec.embd;
    out.norm(name("norm"), all);
    out.matrix(name("down"), Class::Other, &[all, RANK]);
    out.matrix(name("up"), Class::Other, &[RANK, all]);
}

impl Block<'_, '_> {
    /// Adds the mixers before attention and experts, and in one layer the products with rows of the table.
    pub(super) fn streams(&mut self) {
        let (embd, all) = (self.spec.embd, STREAMS * self.spec.embd);
        for part in ["attn", "ffn"] {
            let name = |what: &str| format!("blk.{}.hc_{part}_{what}.weight", self.layer);
            mixer(self.spec, self.out, name);
            self.out.matrix(name("inject"), Class::Other, &[all, STREAMS]);
        }
        if self.layer != TABLE_LAYER {
            return;
        }
        self.matrix("ple_key", Class::Other, &[embd, all]);
        self.matrix("ple_value", Class::Other, &[embd, embd]);
        for norm in ["ple_norm_key", "ple_norm_query", "ple_norm_conv"] {
            self.norm(norm, all);
        }
        let conv = self.name("ple_conv1d", "weight");
        self.float(conv, &[CONV, all], Fill::Normal { mean: 0.0, std: 0.5 });
    }

    /// Adds the projections that choose the positions which are attended to.
    pub(super) fn indexer(&mut self) {
        let embd = self.spec.embd;
        self.matrix("indexer.q_proj", Class::Other, &[embd, INDEX_HEADS * INDEX_HEAD]);
        self.matrix("indexer.k_proj", Class::Other, &[embd, INDEX_HEAD]);
        self.norm("indexer.q_norm", INDEX_HEAD);
        self.norm("indexer.k_norm", INDEX_HEAD);
    }
}

/// Returns the hyperparameters.
pub(crate) fn hyperparameters(spec: &Spec) -> Vec<(&'static str, Value)> {
    let of_a_hash = u64::from(spec.table_rows / Spec::HASHES);
    let offsets: Vec<u64> = (0..u64::from(Spec::HASHES)).map(|hash| hash * of_a_hash).collect();
    let hashed = vec![u64::from(spec.hashed_rows); Spec::HASHES as usize];
    vec![
        ("hyper_connection.count", STREAMS.into()),
        ("hyper_connection.low_rank", RANK.into()),
        ("attention.indexer.head_count", INDEX_HEADS.into()),
        ("attention.indexer.key_length", INDEX_HEAD.into()),
        ("attention.indexer.top_k", CHOSEN.into()),
        ("attention.compress_ratios", vec![POOLED; spec.layers as usize].into()),
        ("embedding_length_per_layer_input", (spec.embd / Spec::HASHES).into()),
        ("ple.layers", vec![TABLE_LAYER].into()),
        ("ple.ngram_size", NGRAM.into()),
        ("ple.heads_per_ngram", HASHES_PER_LENGTH.into()),
        ("ple.conv_kernel", CONV.into()),
        ("ple.eos_token_id", Vocabulary::FIRST_CONTROL.into()),
        ("ple.layer_multipliers", MULTIPLIERS.to_vec().into()),
        ("ple.head_offsets", offsets.into()),
        ("ple.head_vocab_sizes", hashed.into()),
    ]
}
