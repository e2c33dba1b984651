//! Rows of every type, and attention in f64.

use terrace_kernels::{CacheType, bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};

const IQ4_NL: [i32; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Pseudo-random numbers.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let x = self.0 ^ (self.0 >> 33);
        x.wrapping_mul(0xff51_afd7_ed55_8ccd) ^ (x >> 29)
    }

    /// From -1 to 1.
    pub fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() >> 16) as usize % n
    }
}

/// A row of `n` values, with what the bytes stand for.
pub fn row(ty: CacheType, n: usize, random: &mut Random) -> (Vec<u8>, Vec<f64>) {
    let mut bytes = Vec::new();
    let mut values = Vec::new();
    match ty {
        CacheType::F32 | CacheType::F16 | CacheType::Bf16 => {
            for _ in 0..n {
                let value = random.float();
                match ty {
                    CacheType::F32 => {
                        bytes.extend(value.to_le_bytes());
                        values.push(f64::from(value));
                    }
                    CacheType::F16 => {
                        bytes.extend(f32_to_f16(value).to_le_bytes());
                        values.push(f64::from(f16_to_f32(f32_to_f16(value))));
                    }
                    _ => {
                        bytes.extend(f32_to_bf16(value).to_le_bytes());
                        values.push(f64::from(bf16_to_f32(f32_to_bf16(value))));
                    }
                }
            }
        }
        _ => {
            for _ in 0..n / 32 {
                let minimum = matches!(ty, CacheType::Q4_1 | CacheType::Q5_1);
                let largest = match ty {
                    CacheType::Q4_0 | CacheType::Q4_1 => 8.0,
                    CacheType::Q5_0 | CacheType::Q5_1 => 16.0,
                    _ => 127.0,
                };
                let mut half = |value: f32| {
                    let half = f32_to_f16(value);
                    bytes.extend(half.to_le_bytes());
                    f64::from(f16_to_f32(half))
                };
                let scale = half((random.float() + 1.5) / 2.0 / largest);
                let minimum = if minimum { half(random.float() - 0.5) } else { 0.0 };
                let count = match ty {
                    CacheType::Q8_0 => 32,
                    CacheType::Q5_0 | CacheType::Q5_1 => 20,
                    _ => 16,
                };
                let block: Vec<u8> = (0..count).map(|_| (random.next() >> 24) as u8).collect();
                let nibbles = &block[count - 16..];
                values.extend((0..32).map(|i| {
                    let nibble = i32::from(if i < 16 { nibbles[i] & 15 } else { nibbles[i - 16] >> 4 });
                    let fifth = i32::from(block[i / 8] >> (i % 8) & 1) * 16;
                    let number = match ty {
                        CacheType::Q8_0 => i32::from(block[i] as i8),
                        CacheType::Q4_0 => nibble - 8,
                        CacheType::Q4_1 => nibble,
                        CacheType::Q5_0 => nibble + fifth - 16,
                        CacheType::Q5_1 => nibble + fifth,
                        _ => IQ4_NL[nibble as usize],
                    };
                    scale * f64::from(number) + minimum
                }));
                bytes.extend(block);
            }
        }
    }
    (bytes, values)
}

/// The attention of a query to keys and values with additions to the scores, as its definition says.
pub fn attend(
    query: &[f32],
    keys: &[&[f64]],
    values: &[&[f64]],
    added: &[f64],
    (scale, softcap): (f64, f64),
    sink: Option<f64>,
) -> Vec<f64> {
    let scores: Vec<f64> = keys
        .iter()
        .zip(added)
        .map(|(key, added)| {
            if *added == f64::NEG_INFINITY {
                return *added;
            }
            let dot: f64 = key.iter().zip(query).map(|(k, q)| k * f64::from(*q)).sum();
            let score = dot * scale;
            added + if softcap == 0.0 { score } else { softcap * (score / softcap).tanh() }
        })
        .collect();
    let largest = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
    let mut out = vec![0.0; values[0].len()];
    if largest == f64::NEG_INFINITY {
        return out;
    }
    let mut sum = sink.map_or(0.0, |sink| (sink - largest).exp());
    for (score, value) in scores.iter().zip(values) {
        let weight = (score - largest).exp();
        sum += weight;
        for (out, value) in out.iter_mut().zip(*value) {
            *out += weight * value;
        }
    }
    out.iter().map(|out| out / sum).collect()
}
