//! The first tokens of a mapped model whose pages are not all in the page cache.

use super::describe::Placed;
use super::round::round;
use super::workload::Workload;
use crate::options::Expected;
use crate::plan::parts::{ColdStart, Estimate};
use terrace_model::ByteSize;

/// Least share of a model on disk that is worth a word: systems evict single pages at any time.
const NOTICED: f64 = 0.01;

impl Placed<'_> {
    /// Estimates the first tokens of a run that maps the model, of which a share of `cold` is still on disk. `None` if
    /// next to nothing is, or nothing is to be generated.
    ///
    /// The disk reads at its sequential rate until everything is there: what the prompt uses first, then what each token
    /// lacks, and the rest while threads compute.
    pub fn cold_start(&self, cold: f64, expected: Expected, warm: &Estimate) -> Option<ColdStart> {
        let Self { model, work, machine, .. } = self;
        if cold < NOTICED || warm.output_tokens == 0 {
            return None;
        }
        let unread = model.size().bytes() as f64 * cold;
        let rate = machine.disk().sequential();
        let used = used_by(work, expected.prompt) * cold;
        let first = (used / rate).max(warm.ttft_ms / 1e3);
        let mut left = (unread - first * rate).max(0.0);
        // Experts are what is left: every token has used the others.
        let (experts, token) = (experts(work, f64::INFINITY).max(1.0), experts(work, 1.0));
        let mut seconds = 0.0;
        let each = 1.0 / warm.decode_tok_s;
        for number in 0..warm.output_tokens {
            if left <= 0.0 {
                seconds += each * f64::from(warm.output_tokens - number);
                break;
            }
            let took = each + token * (left / experts).min(1.0) / rate;
            seconds += took;
            left -= took * rate;
        }
        Some(ColdStart {
            unread: ByteSize(unread as u64),
            read_ms: round(unread / rate * 1e3),
            ttft_ms: round(first * 1e3),
            decode_tok_s: round(f64::from(warm.output_tokens) / seconds),
        })
    }
}

/// Bytes of weights that a prompt of this many tokens uses, with uniform routing.
fn used_by(work: &Workload, tokens: u32) -> f64 {
    let dense: u64 = work.layers.iter().map(|layer| layer.dense).sum();
    dense as f64 + experts(work, f64::from(tokens))
}

/// Bytes of the experts that some of `tokens` tokens use, with uniform routing.
fn experts(work: &Workload, tokens: f64) -> f64 {
    let of_layer = |layer: &super::workload::LayerLoad| {
        let experts = layer.experts.as_ref()?;
        Some(experts.bytes as f64 * (1.0 - (1.0 - experts.used()).powf(tokens)))
    };
    work.layers.iter().filter_map(of_layer).sum()
}
