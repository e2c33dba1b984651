use std::time::Duration;
use terrace_kernels::attention::Shape;
use terrace_kernels::rates::{Matrices, attention, attention_peak, product_peak, products, read};
use terrace_kernels::{CacheType, Isa, WeightType};

#[test]
fn rates_are_numbers() {
    let matrices = Matrices { ty: WeightType::Q4_0, length: 64, rows: 40, tokens: 9, interleaved: false };
    let weights = vec![0x11; 2 * matrices.bytes() + 5];
    let (seconds, count) = products(&matrices, &weights, 2, Duration::ZERO).expect("two matrices");
    assert!(seconds > 0.0 && count == 2);
    assert!(products(&matrices, &weights[..100], 2, Duration::ZERO).is_none());
    let shape = Shape {
        tokens: 1,
        heads: 4,
        kv_heads: 2,
        streams: 1,
        kv_streams: 1,
        positions: 300,
        key_length: 32,
        value_length: 32,
        keys: CacheType::F16,
        values: CacheType::Q8_0,
    };
    let layer = shape.positions * 2 * (32 * 2 + 34);
    let memory = vec![0x1c; 2 * layer + 7];
    let rate = attention(shape, &memory, 2, Duration::ZERO).expect("two layers");
    assert!(rate.bytes_per_s.is_finite() && rate.bytes_per_s > 0.0);
    // Four heads multiply each value that two heads of keys and values have.
    let each = rate.flops_per_s / rate.bytes_per_s;
    assert!((each / (2.0 * 4.0 * 64.0 / (layer / shape.positions) as f64) - 1.0).abs() < 1e-6, "{each}");
    assert!(attention(shape, &memory[..layer - 1], 2, Duration::ZERO).is_none());
    let none = Shape { kv_heads: 3, ..shape };
    assert!(attention(none, &memory, 2, Duration::ZERO).is_none());
    assert_eq!(read(&[1; 8 * 70]), 70 * 0x0101_0101_0101_0101);
}

/// Each kind of numbers that instructions multiply.
#[test]
fn all_instructions_multiply() {
    for &isa in Isa::available() {
        for ty in [WeightType::Q4_0, WeightType::F16, WeightType::Bf16] {
            assert!(product_peak(ty, isa, 1, Duration::ZERO) > 0.0, "{isa:?} {ty:?}");
        }
    }
    assert!(attention_peak(CacheType::F16, 2, Duration::ZERO) > 0.0);
}
