//! Floats of 16 bits.

/// The float that these bits of IEEE binary16 stand for.
#[inline(always)]
pub const fn f16_to_f32(bits: u16) -> f32 {
    let sign = ((bits & 0x8000) as u32) << 16;
    let magnitude = ((bits & 0x7fff) as u32) << 13;
    // The exponent's bias is 112 smaller, of subnormals as well. That of what is not finite is the largest there is.
    let scaled = f32::from_bits(magnitude) * f32::from_bits((112 + 127) << 23);
    let finite = magnitude < 0x7c00 << 13;
    f32::from_bits(sign | if finite { scaled.to_bits() } else { 0x7f80_0000 | magnitude })
}

/// The nearest binary16, ties to even; what is too large becomes infinite.
pub const fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude >= 0x7f80_0000 {
        // Infinite, or not a number, which stays that.
        return sign | 0x7c00 | if magnitude > 0x7f80_0000 { 0x200 } else { 0 };
    }
    if magnitude < 0x3880_0000 {
        // A subnormal: adding 0.5 rounds to units of 2^-24, where 0.5's own fraction ends.
        let rounded = f32::from_bits(magnitude) + 0.5;
        return sign | (rounded.to_bits() - 0.5f32.to_bits()) as u16;
    }
    let odd = (magnitude >> 13) & 1;
    let rounded = (magnitude + 0xfff + odd - (112 << 23)) >> 13;
    sign | if rounded >= 0x7c00 { 0x7c00 } else { rounded as u16 }
}

/// The float that these bits of bfloat16 stand for.
#[inline(always)]
pub const fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// The nearest bfloat16, ties to even.
pub const fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    let odd = (bits >> 16) & 1;
    ((bits as u64 + 0x7fff + odd as u64) >> 16) as u16
}
