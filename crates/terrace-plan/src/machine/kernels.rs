//! The kernels that the processor computes with, and the rates of those with an order of sums of their own.

use super::{MachineProfile, MatmulRate, default_rates};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The kernels that a run computes with on the processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kernels {
    /// Those with ggml's bits.
    #[default]
    Exact,
    /// Those with an order of sums of their own.
    Fast,
}

/// Rates of [`Kernels::Fast`] with all cores.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FastRates {
    /// Rates of matrix products, by quantisation type (ggml's name). A number that is missing is that of ggml's kernels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub matmul: BTreeMap<String, MatmulRate>,
    /// Operations per second of attention, if it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention: Option<AttentionRate>,
}

/// Floating point operations per second of attention over keys and values in F16.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionRate {
    /// Of a single token, which reads the keys for itself.
    pub token_flops: f64,
    /// Of the tokens of a prompt, which share them.
    pub prompt_flops: f64,
}

impl FastRates {
    /// Returns whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Takes the rates of another measurement of attention that are better.
    pub fn improve_attention(&mut self, other: AttentionRate) {
        let best = self.attention.get_or_insert(other);
        best.token_flops = best.token_flops.max(other.token_flops);
        best.prompt_flops = best.prompt_flops.max(other.prompt_flops);
    }

    /// Changes the rates of arithmetic, as another number of cores does.
    pub fn scale_arithmetic(&mut self, factor: f64) {
        for rate in self.matmul.values_mut() {
            rate.prefill_flops = rate.prefill_flops.map(|flops| flops * factor);
        }
        if let Some(rate) = &mut self.attention {
            rate.token_flops *= factor;
            rate.prompt_flops *= factor;
        }
    }
}

impl MachineProfile {
    /// The rates of this type that were measured with the run's own kernels; `None` if it computes with ggml's.
    pub(super) fn fast_rate(&self, ty: &str) -> Option<&MatmulRate> {
        self.cpu.fast.matmul.get(ty).filter(|_| self.cpu.kernels == Kernels::Fast)
    }

    /// Returns the operations per second of attention in main memory, for a single token.
    pub fn host_token_attention_flops(&self) -> f64 {
        let (of_ggml, faster) = (default_rates::TOKEN_ATTENTION_FLOPS, default_rates::FAST_TOKEN_ATTENTION);
        self.attention_flops(of_ggml, faster, |rate| rate.token_flops)
    }

    /// Returns the same for the tokens of a prompt.
    pub fn host_attention_flops(&self) -> f64 {
        let (of_ggml, faster) = (default_rates::ATTENTION_FLOPS, default_rates::FAST_ATTENTION);
        self.attention_flops(of_ggml, faster, |rate| rate.prompt_flops)
    }

    /// The rate that was measured for the run's kernels; by default ggml's, per core, times the usual speed-up.
    fn attention_flops(&self, of_ggml: f64, faster: f64, measured: fn(&AttentionRate) -> f64) -> f64 {
        let default = of_ggml * f64::from(self.cpu.cores.max(1));
        match self.cpu.kernels {
            Kernels::Exact => default,
            Kernels::Fast => self.cpu.fast.attention.as_ref().map_or(default * faster, measured),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::ByteSize;

    #[test]
    fn rates_are_those_of_the_kernels_that_compute() {
        let mut machine = MachineProfile::unmeasured("m", 2, ByteSize::gib(8), ByteSize::gib(8));
        let rate = |decode, prefill| MatmulRate {
            decode_bytes_per_s: decode,
            prefill_flops: Some(prefill),
            ..MatmulRate::default()
        };
        machine.cpu.matmul.insert("q4_K".into(), rate(Some(9e9), 2e11));
        machine.cpu.matmul.insert("bf16".into(), rate(Some(1e10), 1e11));
        machine.cpu.fast.matmul.insert("q4_K".into(), rate(Some(2e10), 8e11));
        machine.cpu.fast.matmul.insert("bf16".into(), rate(None, 6e11));
        machine.cpu.fast.attention = Some(AttentionRate { token_flops: 1e11, prompt_flops: 3e11 });
        let rates = |machine: &MachineProfile| {
            ["q4_K", "bf16"].map(|ty| (machine.host_decode_rate(ty), machine.host_prefill_flops(ty)))
        };
        let exact = (machine.host_token_attention_flops(), machine.host_attention_flops());
        assert_eq!(rates(&machine), [(9e9, 2e11), (1e10, 1e11)]);
        machine.cpu.kernels = Kernels::Fast;
        assert_eq!(rates(&machine), [(2e10, 8e11), (1e10, 6e11)]);
        assert_eq!((machine.host_token_attention_flops(), machine.host_attention_flops()), (1e11, 3e11));
        assert!((4e11..8e11).contains(&machine.host_prefill_graph_flops("q4_K")));
        assert!(machine.host_graph_rate("q4_K") < 2e10, "what is between products takes time, too");
        machine.cpu.fast.improve_attention(AttentionRate { token_flops: 9e10, prompt_flops: 4e11 });
        assert_eq!((machine.host_token_attention_flops(), machine.host_attention_flops()), (1e11, 4e11));
        machine.cpu.fast.scale_arithmetic(2.0);
        assert_eq!(machine.host_prefill_flops("q4_K"), 16e11);
        assert_eq!((machine.host_decode_rate("q4_K"), machine.host_attention_flops()), (2e10, 8e11));
        machine.cpu.fast = FastRates::default();
        assert_eq!(rates(&machine), [(9e9, 2e11 * default_rates::FAST_PREFILL), (1e10, 1e11)]);
        assert!(machine.host_token_attention_flops() > exact.0 && machine.host_attention_flops() > exact.1);
    }
}
