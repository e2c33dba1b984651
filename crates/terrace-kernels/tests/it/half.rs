use terrace_kernels::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};

#[test]
fn every_half_survives_the_round_trip() {
    for bits in 0..=u16::MAX {
        let value = f16_to_f32(bits);
        if value.is_nan() {
            assert!(f16_to_f32(f32_to_f16(value)).is_nan());
        } else {
            assert_eq!(f32_to_f16(value), bits, "{value}");
        }
        if !bf16_to_f32(bits).is_nan() {
            assert_eq!(f32_to_bf16(bf16_to_f32(bits)), bits);
        }
    }
}

#[test]
fn halves_round_to_even() {
    for bits in 0..0x7bff_u16 {
        let (low, high) = (f16_to_f32(bits), f16_to_f32(bits + 1));
        let middle = low + (high - low) / 2.0;
        assert_eq!(f32_to_f16(middle), bits + (bits & 1), "{middle}");
        assert_eq!(f32_to_f16(f32::from_bits(middle.to_bits() + 1)), bits + 1);
        assert_eq!(f32_to_f16(f32::from_bits(middle.to_bits() - 1)), bits);
    }
    assert_eq!(f32_to_f16(65_520.0), 0x7c00);
    assert_eq!(f32_to_f16(-1e30), 0xfc00);
}
