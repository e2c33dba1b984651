//! Measures the CPU with the shortest possible times.

use super::processor::pattern;
use super::*;
use crate::quantize::{WeightType, is_valid};
use std::time::Duration;
use terrace_model::ByteSize;

#[test]
fn the_pattern_is_valid_in_every_type() {
    for &ty in WeightType::ALL {
        let bytes = usize::try_from(ty.row_bytes(4096).unwrap()).unwrap();
        assert!(is_valid(ty, &pattern(bytes)), "{}", ty.name());
    }
}

#[test]
fn products_of_every_type_take_time() {
    let mut cpu = Processor::cpu(2, ByteSize::mib(8)).unwrap();
    assert_eq!(cpu.host_weights().unwrap().len(), 8 << 20);
    for &ty in WeightType::ALL {
        let one = Product { ty, rows: 64, cols: 512, tokens: 1, experts: None };
        let experts = Product { experts: Some(4), ..one };
        let many = Product { tokens: 32, ..one };
        for product in [one, experts, many] {
            let pass = cpu.product(&product, ByteSize::mib(1), Duration::ZERO).unwrap().unwrap();
            assert!(pass.seconds > 0.0 && pass.bytes > 0 && pass.bytes <= 1 << 20, "{}", ty.name());
            assert_eq!(pass.flops % (2 * 64 * 512 * u64::from(product.tokens)), 0);
        }
    }
    assert!(cpu.layer_overhead(Duration::ZERO).unwrap() > 0.0);
    for ty in [WeightType::F16, WeightType::Q8_0] {
        let attention = Attention { ty, heads: 4, kv_heads: 2, length: 64, positions: 300 };
        let pass = cpu.attention(&attention, Duration::ZERO).unwrap().unwrap();
        let bytes = attention.bytes().unwrap();
        assert!(
            pass.seconds > 0.0 && pass.bytes.is_multiple_of(bytes) && pass.bytes <= 8 << 20,
            "{}",
            ty.name()
        );
        let large = Attention { positions: 1 << 20, ..attention };
        assert!(cpu.attention(&large, Duration::ZERO).unwrap().is_none());
    }
}

#[test]
fn copies_take_time_and_too_much_is_refused() {
    let mut cpu = Processor::cpu(1, ByteSize::mib(2)).unwrap();
    let (there, back) = cpu.link(ByteSize::mib(1), Duration::ZERO).unwrap();
    assert!(there > 0.0 && back > 0.0 && cpu.latency(Duration::ZERO) > 0.0);
    assert!(cpu.link(ByteSize::mib(3), Duration::ZERO).is_none());
    let large = Product { ty: WeightType::F32, rows: 1024, cols: 1024, tokens: 1, experts: None };
    assert!(cpu.product(&large, ByteSize::mib(2), Duration::ZERO).unwrap().is_none());
    assert!(matches!(Processor::cpu(1, ByteSize(u64::MAX / 2)), Err(RatesError::Memory { .. })));
}
