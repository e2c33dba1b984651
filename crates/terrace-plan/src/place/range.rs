//! The range of a speed around its estimate.

use super::round::round;
use crate::MachineProfile;
use crate::plan::parts::Range;

/// Bounds of measured / estimated rates.
#[derive(Clone, Copy)]
pub struct Bounds {
    low: f64,
    high: f64,
}

/// Decoding: of 40 measurements in `docs/benchmarks/plans.md` (sections of fifteen shapes, and of estimates beside
/// measurements), none was below 0.83 or above 1.22; those of shapes and machines that no constant was set on scatter
/// about half as much again.
pub const DECODE: Bounds = Bounds { low: 0.75, high: 1.3 };
/// Prompts: of 23 measurements there, one was below 0.5 (0.34) and none above 1.27.
pub const PREFILL: Bounds = Bounds { low: 0.5, high: 1.3 };
/// Both, if rates of the machine are assumed, not measured.
const ASSUMED: f64 = 1.6;

impl Bounds {
    /// Returns the bounds of an estimate with this machine's rates.
    pub fn of(self, machine: &MachineProfile) -> Self {
        let measured = !machine.memory.bandwidth.is_empty() && !machine.cpu.matmul.is_empty();
        let measured = measured && !machine.storage.is_empty();
        let factor = if measured { 1.0 } else { ASSUMED };
        Self { low: self.low / factor, high: self.high * factor }
    }

    /// Returns the range of a rate.
    pub fn rate(self, estimate: f64) -> Range {
        Range { low: round(estimate * self.low), high: round(estimate * self.high) }
    }

    /// Returns the range of a time, which is short where the rate is high.
    pub fn time(self, estimate: f64) -> Range {
        Range { low: round(estimate / self.high), high: round(estimate / self.low) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{MatmulRate, StorageProfile, ThreadBandwidth};
    use terrace_model::ByteSize;

    #[test]
    fn assumed_rates_widen_ranges() {
        let mut machine = MachineProfile::unmeasured("m", 2, ByteSize::gib(8), ByteSize::gib(8));
        let Range { low, high } = DECODE.of(&machine).rate(10.0);
        assert_eq!((low, high), (4.688, 20.8));
        machine.memory.bandwidth.push(ThreadBandwidth { threads: 1, bytes_per_s: 2e10 });
        machine.cpu.matmul.insert("q4_K".into(), MatmulRate::default());
        machine.storage.push(StorageProfile::default());
        let Range { low, high } = DECODE.of(&machine).rate(10.0);
        assert_eq!((low, high), (7.5, 13.0));
        let Range { low, high } = PREFILL.of(&machine).time(1000.0);
        assert_eq!((low, high), (769.2, 2000.0));
    }
}
