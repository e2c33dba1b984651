use crate::emulated;
use crate::grids::grid_weights;
use crate::oracle::Random;
use terrace_kernels::WeightType;
use terrace_kernels::matmul::{Column, PANEL, Product};
use terrace_kernels::{Isa, bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};

const IQ4_NL: [i32; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
const E2M1: [f64; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// A row of random blocks with plausible scales.
fn row(ty: WeightType, n: usize, random: &mut Random) -> Vec<u8> {
    if ty.is_float() {
        return (0..n).flat_map(|_| from_float(ty, random.float() / 8.0).to_le_bytes()).collect();
    }
    let mut bytes: Vec<u8> = (0..ty.row_bytes(n)).map(|_| (random.next() >> 24) as u8).collect();
    for block in bytes.chunks_mut(ty.block_bytes()) {
        let mut half = |at: usize| {
            block[at..at + 2].copy_from_slice(&f32_to_f16(random.float() / 64.0).to_le_bytes());
        };
        match ty {
            WeightType::Mxfp4 => block[0] = 118 + (random.next() >> 30) as u8 % 8,
            WeightType::Q4K | WeightType::Q5K | WeightType::Q4_1 | WeightType::Q5_1 => {
                [0, 2].into_iter().for_each(half);
            }
            WeightType::Q2K => [80, 82].into_iter().for_each(half),
            WeightType::Q3K => half(108),
            WeightType::Q6K => half(208),
            WeightType::Iq1M => {
                let scale = f32_to_f16(random.float() / 64.0);
                (0..4).for_each(|i| set_part_of_scale(block, i, scale));
            }
            _ => half(0),
        }
    }
    bytes
}

/// Sets part `i` of four of the scale of a block of IQ1_M: the highest bits of as many numbers at its end.
fn set_part_of_scale(block: &mut [u8], i: usize, scale: u16) {
    let byte = &mut block[49 + 2 * i];
    *byte = *byte & 15 | ((scale >> (4 * i) & 15) as u8) << 4;
}

fn from_float(ty: WeightType, value: f32) -> u16 {
    if ty == WeightType::F16 { f32_to_f16(value) } else { f32_to_bf16(value) }
}

fn to_float(ty: WeightType, bits: u16) -> f64 {
    f64::from(if ty == WeightType::F16 { f16_to_f32(bits) } else { bf16_to_f32(bits) })
}

/// What a row stands for, as ggml's `dequantize_row` functions say.
fn dequantise(ty: WeightType, bytes: &[u8]) -> Vec<f64> {
    let half = |bytes: &[u8]| f64::from(f16_to_f32(u16::from_le_bytes([bytes[0], bytes[1]])));
    let mut out = Vec::new();
    for block in bytes.chunks(ty.block_bytes()) {
        match ty {
            WeightType::F16 | WeightType::Bf16 => {
                out.extend(block.chunks(2).map(|bits| to_float(ty, u16::from_le_bytes([bits[0], bits[1]]))));
            }
            WeightType::Q4_0 | WeightType::Iq4Nl | WeightType::Mxfp4 => {
                let nibbles = &block[block.len() - 16..];
                let low = nibbles.iter().map(|b| b & 15);
                out.extend(low.chain(nibbles.iter().map(|b| b >> 4)).map(|nibble| match ty {
                    WeightType::Q4_0 => half(block) * (f64::from(nibble) - 8.0),
                    WeightType::Iq4Nl => half(block) * f64::from(IQ4_NL[usize::from(nibble)]),
                    _ => (f64::from(block[0]) - 127.0).exp2() * E2M1[usize::from(nibble)],
                }));
            }
            WeightType::Q8_0 => out.extend(block[2..].iter().map(|&b| half(block) * f64::from(b as i8))),
            WeightType::Q4_1 | WeightType::Q5_0 | WeightType::Q5_1 => {
                let nibbles = &block[block.len() - 16..];
                for i in 0..32 {
                    let low = if i < 16 { nibbles[i] & 15 } else { nibbles[i - 16] >> 4 };
                    let high = block[block.len() - 20 + i / 8] >> (i % 8) & 1;
                    let value = f64::from(low + 16 * high * u8::from(ty != WeightType::Q4_1));
                    out.push(match ty {
                        WeightType::Q5_0 => half(block) * (value - 16.0),
                        _ => half(block) * value + half(&block[2..]),
                    });
                }
            }
            WeightType::Q2K => {
                for i in 0..256 {
                    let (part, j) = (i / 128, i % 128);
                    let pair = block[16 + part * 32 + j % 32] >> (j / 32 * 2) & 3;
                    let packed = block[i / 16];
                    let scale = half(&block[80..]) * f64::from(packed & 15);
                    out.push(scale * f64::from(pair) - half(&block[82..]) * f64::from(packed >> 4));
                }
            }
            WeightType::Q3K => {
                // As ggml: words of four scales, low nibbles of the first two, high ones, and pairs of the third.
                let word = |i: usize| u32::from_le_bytes(block[96 + 4 * i..][..4].try_into().unwrap());
                let (a, b, c) = (word(0), word(1), word(2));
                let words = [
                    a & 0x0f0f_0f0f | (c & 0x0303_0303) << 4,
                    b & 0x0f0f_0f0f | (c >> 2 & 0x0303_0303) << 4,
                    a >> 4 & 0x0f0f_0f0f | (c >> 4 & 0x0303_0303) << 4,
                    b >> 4 & 0x0f0f_0f0f | (c >> 6 & 0x0303_0303) << 4,
                ];
                for i in 0..256 {
                    let (part, j) = (i / 128, i % 128);
                    let pair = block[32 + part * 32 + j % 32] >> (j / 32 * 2) & 3;
                    let high = block[j % 32] >> (i / 32) & 1;
                    let value = i32::from(pair) - if high == 0 { 4 } else { 0 };
                    let scale = words[i / 64].to_le_bytes()[i / 16 % 4];
                    out.push(half(&block[108..]) * (f64::from(scale) - 32.0) * f64::from(value));
                }
            }
            WeightType::Iq4Xs => {
                let high = u16::from_le_bytes([block[2], block[3]]);
                for i in 0..256 {
                    let sub = i / 32;
                    let low = block[4 + sub / 2] >> (4 * (sub % 2)) & 15;
                    let scale = i32::from(low) + 16 * i32::from(high >> (2 * sub) & 3) - 32;
                    let byte = block[8 + sub * 16 + i % 16];
                    let nibble = if i % 32 < 16 { byte & 15 } else { byte >> 4 };
                    out.push(half(block) * f64::from(scale) * f64::from(IQ4_NL[usize::from(nibble)]));
                }
            }
            WeightType::Q4K | WeightType::Q5K => {
                for sub in 0..8 {
                    let packed = &block[4..16];
                    let (scale, minimum) = if sub < 4 {
                        (packed[sub] & 63, packed[sub + 4] & 63)
                    } else {
                        (
                            (packed[sub + 4] & 15) + 16 * (packed[sub - 4] >> 6),
                            (packed[sub + 4] >> 4) + 16 * (packed[sub] >> 6),
                        )
                    };
                    let first = if ty == WeightType::Q5K { 48 } else { 16 };
                    let nibbles = &block[first + sub / 2 * 32..][..32];
                    out.extend(nibbles.iter().enumerate().map(|(i, b)| {
                        let high = if ty == WeightType::Q5K { block[16 + i] >> sub & 1 } else { 0 };
                        let value = f64::from(if sub % 2 == 0 { b & 15 } else { b >> 4 } + 16 * high);
                        half(block) * f64::from(scale) * value - half(&block[2..]) * f64::from(minimum)
                    }));
                }
            }
            WeightType::Q6K => {
                for i in 0..256 {
                    let (part, j) = (i / 128, i % 128);
                    let low = block[part * 64 + j % 64];
                    let low = if j < 64 { low & 15 } else { low >> 4 };
                    let high = (block[128 + part * 32 + j % 32] >> (j / 32 * 2)) & 3;
                    let scale = f64::from(block[192 + i / 16] as i8);
                    out.push(half(&block[208..]) * scale * f64::from(i32::from(low + 16 * high) - 32));
                }
            }
            _ => out.extend(grid_weights(ty, block)),
        }
    }
    out
}

/// Activations as blocks of `block` bytes stand for them: 32 with a scale of 16 bits, or 256 with one of 32.
pub fn rounded(activations: &[f32], block: usize) -> Vec<f64> {
    let blocks = activations.chunks(block).flat_map(|values| {
        let largest = values.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
        let inverse = if largest == 0.0 { 0.0 } else { 127.0 / largest };
        let scale = match block {
            32 => f16_to_f32(f32_to_f16(largest / 127.0)),
            _ if largest == 0.0 => 0.0,
            _ => 1.0 / inverse,
        };
        let (scale, block) = (f64::from(scale), values);
        block.iter().map(move |x| scale * f64::from((x * inverse).round_ties_even()))
    });
    blocks.collect()
}

/// Activations as products with a type take them.
fn rounded_for(ty: WeightType, activations: &[f32]) -> Vec<f64> {
    if ty.is_float() {
        return activations.iter().map(|x| to_float(ty, from_float(ty, *x))).collect();
    }
    rounded(activations, ty.block())
}

/// Memory in units of 64 bytes.
#[repr(C, align(64))]
#[derive(Clone)]
struct CacheLine([u8; 64]);

pub struct Case {
    ty: WeightType,
    length: usize,
    rows: usize,
    weights: Vec<u8>,
    activations: Vec<Vec<f32>>,
}

impl Case {
    pub fn new(ty: WeightType, length: usize, rows: usize, columns: usize) -> Self {
        let mut random = Random((length * rows + columns) as u64);
        let weights = (0..rows).flat_map(|_| row(ty, length, &mut random)).collect();
        let activations =
            (0..columns).map(|i| (0..length).map(|_| random.float() * (i as f32 % 3.0)).collect()).collect();
        Self { ty, length, rows, weights, activations }
    }

    /// Results of some columns, computed in ranges of so many rows.
    fn compute(&self, columns: std::ops::Range<usize>, share: usize, isa: Isa) -> Vec<Vec<u32>> {
        self.compute_in(columns, share, isa, false)
    }

    /// The same with rows of activations at equal distances or, `mixed`, at others.
    fn compute_in(
        &self,
        columns: std::ops::Range<usize>,
        share: usize,
        isa: Isa,
        mixed: bool,
    ) -> Vec<Vec<u32>> {
        let product = Product::new(self.ty, self.length, isa).unwrap();
        self.compute_by(product, &self.weights, columns, share, mixed)
    }

    /// The same by a product of these weights.
    fn compute_by(
        &self,
        product: Product,
        weights: &[u8],
        columns: std::ops::Range<usize>,
        share: usize,
        mixed: bool,
    ) -> Vec<Vec<u32>> {
        let lines = product.activation_bytes().div_ceil(64) + 1;
        let mut inputs = vec![CacheLine([0xff; 64]); lines * columns.len()];
        let mut outs = vec![vec![f32::NAN; self.rows + 1]; columns.len()];
        let mut scratch = vec![CacheLine([0xff; 64]); Product::scratch_bytes().div_ceil(64)];
        let columns: Vec<Column> = columns
            .zip(inputs.chunks_mut(lines).zip(&mut outs))
            .map(|(i, (input, out))| {
                let input = &mut input[usize::from(mixed && i % 3 == 0)..];
                // SAFETY: the row has the product's length, the buffer the size that it asks for.
                unsafe { product.quantise(self.activations[i].as_ptr(), input.as_mut_ptr().cast()) };
                Column { input: input.as_ptr().cast(), out: out.as_mut_ptr() }
            })
            .collect();
        let stride = self.ty.row_bytes(self.length);
        for first in (0..self.rows).step_by(share) {
            let rows = first..self.rows.min(first + share);
            // SAFETY: the buffers have the sizes of the rows.
            unsafe {
                product.run(weights.as_ptr(), stride, rows, &columns, scratch.as_mut_ptr().cast());
            }
        }
        for out in &mut outs {
            assert!(out.pop().unwrap().is_nan(), "writes after the last row");
        }
        outs.into_iter().map(|out| out.into_iter().map(f32::to_bits).collect()).collect()
    }

    fn check(&self) {
        self.check_with(&emulated::available());
    }

    pub fn check_with(&self, isas: &[Isa]) {
        let first = self.compute(0..self.activations.len(), self.rows, Isa::Scalar);
        for &isa in isas {
            let all = self.compute(0..self.activations.len(), self.rows, isa);
            for (column, (activations, out)) in self.activations.iter().zip(&all).enumerate() {
                let rounded = rounded_for(self.ty, activations);
                for (row, weights) in self.weights.chunks(self.ty.row_bytes(self.length)).enumerate() {
                    let weights = dequantise(self.ty, weights);
                    let dot = |x: &[f64]| weights.iter().zip(x).map(|(w, x)| w * x).sum::<f64>();
                    let magnitude: f64 = weights.iter().zip(&rounded).map(|(w, x)| (w * x).abs()).sum();
                    let ours = f64::from(f32::from_bits(out[row]));
                    let error = (ours - dot(&rounded)).abs();
                    let name = format!("{isa:?} {:?} row {row}, column {column}", self.ty);
                    // Minima are subtracted from what is larger than the result.
                    assert!(error <= 4e-6 * magnitude.max(1e-3), "{name}: {ours}, not {}", dot(&rounded));

                    // Half a step of each block of activations, and what rounding the step to 16 bits adds.
                    let exact: Vec<f64> = activations.iter().map(|&x| f64::from(x)).collect();
                    let bound: f64 = weights
                        .chunks(self.ty.block())
                        .zip(exact.chunks(self.ty.block()))
                        .map(|(w, x)| {
                            if self.ty.is_float() {
                                // Half of the last place.
                                let share = if self.ty == WeightType::F16 { -11.0f64 } else { -9.0 }.exp2();
                                return w.iter().zip(x).map(|(w, x)| (w * x).abs()).sum::<f64>() * share;
                            }
                            let step = x.iter().fold(0.0, |a: f64, x| a.max(x.abs())) / 127.0;
                            w.iter().map(|w| w.abs()).sum::<f64>() * step / 2.0
                        })
                        .sum();
                    assert!((ours - dot(&exact)).abs() <= bound * 1.14 + 1e-5, "{name}");
                }
            }
            assert_eq!(self.compute(0..self.activations.len(), PANEL, isa), all, "{isa:?} {:?}", self.ty);
            if self.ty.block() == 256 {
                assert_eq!(first, all, "{isa:?} and plain Rust, {:?}", self.ty);
            }
            for (i, column) in all.iter().enumerate() {
                let alone = self.compute(i..i + 1, 1 + i * 7, isa);
                assert_eq!(&alone[0], column, "{isa:?} {:?} column {i}", self.ty);
            }
        }
    }
}

#[test]
fn every_type_is_what_its_definition_says() {
    for ty in WeightType::ALL {
        for (blocks, rows, columns) in [(1, 1, 1), (3, 37, 8), (9, 16, 5), (2, 70, 13)] {
            Case::new(ty, blocks * 256, rows, columns).check();
        }
        if ty.block() == 32 {
            for (blocks, rows, columns) in [(1, 33, 2), (3, 20, 7), (17, 40, 3), (33, 5, 4)] {
                Case::new(ty, blocks * 32, rows, columns).check();
            }
        }
    }
}

/// Scales and minima of sub-blocks that are as large, or as small, as they can be.
#[test]
fn extreme_scales_of_superblocks_are_exact_integers() {
    for ty in WeightType::ALL.into_iter().filter(|ty| ty.block() == 256) {
        for fill in [0x00, 0xff, 0x80, 0x7f] {
            let mut case = Case::new(ty, 512, 33, 9);
            for block in case.weights.chunks_mut(ty.block_bytes()) {
                block.fill(fill);
                let half = f32_to_f16(0.01).to_le_bytes();
                let at: &[usize] = match ty {
                    WeightType::Q4K | WeightType::Q5K => &[0, 2],
                    WeightType::Q2K => &[80, 82],
                    WeightType::Q3K => &[108],
                    WeightType::Q6K => &[208],
                    WeightType::Iq1M => {
                        (0..4).for_each(|i| set_part_of_scale(block, i, f32_to_f16(0.01)));
                        &[]
                    }
                    _ => &[0],
                };
                at.iter().for_each(|&at| block[at..at + 2].copy_from_slice(&half));
            }
            case.activations.iter_mut().for_each(|row| row.iter_mut().for_each(|x| *x = x.signum()));
            case.check();
        }
    }
}

/// Tiles give the bits of vectors, with rows of activations at equal distances and elsewhere, and in groups of any size.
#[test]
fn tiles_and_vectors_are_equal() {
    if !emulated::available().contains(&Isa::Amx) {
        return;
    }
    for ty in WeightType::ALL.into_iter().filter(|ty| !ty.is_float()) {
        for columns in [8, 16, 17, 33] {
            let case = Case::new(ty, 768, 49, columns);
            let of = |isa, reversed| case.compute_in(0..columns, 32, isa, reversed);
            let vectors = of(Isa::Avx512Vnni, false);
            assert_eq!(of(Isa::Amx, false), vectors, "{ty:?}, {columns} columns");
            assert_eq!(of(Isa::Amx, true), vectors, "{ty:?}, {columns} columns elsewhere");
        }
    }
}

/// The choice by a measurement does not change bits.
#[test]
fn the_fastest_products_give_the_same_bits() {
    for ty in WeightType::ALL {
        let case = Case::new(ty, 512, 40, 70);
        for columns in [1, 9, 16, 33, 70] {
            let fastest = Product::fastest(ty, case.length).unwrap();
            let plain = case.compute(0..columns, 40, Isa::best());
            assert_eq!(case.compute_by(fastest, &case.weights, 0..columns, 40, false), plain, "{ty:?}");
        }
    }
}

/// NEON's levels give the same bits.
#[test]
fn levels_of_neon_are_equal() {
    for ty in WeightType::ALL {
        for columns in [3, 9] {
            let case = Case::new(ty, 512, 37, columns);
            let of = |isa| case.compute(0..columns, 37, isa);
            for &isa in Isa::available().iter().filter(|isa| matches!(isa, Isa::NeonDot | Isa::NeonI8mm)) {
                assert_eq!(of(isa), of(Isa::Neon), "{isa:?} {ty:?}, {columns} columns");
            }
        }
    }
}

/// Bytes that go through all columns of few rows and of panels, and through groups of rows in any ranges.
#[test]
fn interleaved_weights_give_the_same_bits() {
    for ty in WeightType::ALL {
        for (blocks, rows, columns) in [(1, 16, 1), (3, 48, 9), (9, 32, 4), (2, 80, 13)] {
            let case = Case::new(ty, blocks * 256, rows, columns);
            for isa in emulated::available() {
                let plain = Product::new(ty, case.length, isa).unwrap();
                let interleaves = plain.multiplies_few() && isa.has_vnni() && !ty.has_grid();
                assert_eq!(interleaves, plain.with_interleaved().is_some());
                assert!(plain.interleaving().is_none());
                let Some(product) = plain.with_interleaved() else { continue };
                let interleaving = product.interleaving().unwrap();
                let mut weights = vec![0; case.weights.len()];
                interleaving.apply(&case.weights, &mut weights);
                for columns in [0..columns, 0..1, 0..columns.min(3), 1.min(columns - 1)..columns] {
                    for share in [rows, 16, 32] {
                        let all = case.compute(columns.clone(), rows, isa);
                        let got = case.compute_by(product, &weights, columns.clone(), share, false);
                        assert_eq!(got, all, "{isa:?} {ty:?}");
                    }
                }
            }
        }
    }
}

/// Interleaving by vectors gives the layout of the definition, and is undone.
#[test]
fn interleaving_is_undone() {
    for ty in WeightType::ALL {
        let case = Case::new(ty, 768, 32, 1);
        for isa in emulated::available() {
            let product = Product::new(ty, case.length, isa).unwrap().with_interleaved();
            let Some(interleaving) = product.and_then(|product| product.interleaving()) else { continue };
            let (mut there, mut back) = (vec![0; case.weights.len()], vec![0; case.weights.len()]);
            interleaving.apply(&case.weights, &mut there);
            assert_ne!(there, case.weights);
            interleaving.undo(&there, &mut back);
            assert_eq!(back, case.weights, "{isa:?} {ty:?}");
        }
    }
}

/// Types with grids without permutations of bytes: panels are unpacked with AVX2, and give the same bits.
#[test]
fn permutations_do_not_change_bits() {
    for ty in WeightType::ALL.into_iter().filter(|ty| ty.has_grid()) {
        for (blocks, rows, columns) in [(1, 16, 1), (3, 37, 8), (2, 70, 13)] {
            let case = Case::new(ty, blocks * 256, rows, columns);
            for isa in emulated::available() {
                let product = Product::new(ty, case.length, isa).unwrap().without_permutations();
                assert!(!product.multiplies_few() && product.with_interleaved().is_none());
                let without = case.compute_by(product, &case.weights, 0..columns, rows, false);
                assert_eq!(case.compute(0..columns, rows, isa), without, "{isa:?} {ty:?}");
            }
        }
    }
}

#[test]
fn any_bytes_are_weights() {
    for ty in WeightType::ALL {
        for fill in [0x00, 0x7c, 0x7f, 0x80, 0xff] {
            let mut case = Case::new(ty, 512, 40, 9);
            case.weights.fill(fill);
            for isa in emulated::available() {
                assert_eq!(case.compute(0..9, 40, isa).len(), 9);
            }
        }
    }
}

#[test]
fn rows_that_are_not_whole_blocks_are_refused() {
    assert!(Product::new(WeightType::Q4K, 32, Isa::Scalar).is_none());
    assert!(Product::new(WeightType::Mxfp4, 0, Isa::Scalar).is_none());
    assert!(Product::new(WeightType::Mxfp4, 2880, Isa::Scalar).is_some());
    assert!(Product::new(WeightType::F16, 40, Isa::Scalar).is_none());
}

#[test]
fn activations_are_shared_by_products_that_quantise_them_alike() {
    for &isa in Isa::available() {
        let of = |ty| Product::new(ty, 512, isa).unwrap();
        for (a, b, share) in [
            (WeightType::Q4_0, WeightType::Q8_0, true),
            (WeightType::Q4K, WeightType::Q6K, true),
            (WeightType::Iq2Xs, WeightType::Iq1M, true),
            (WeightType::Iq4Xs, WeightType::Q6K, true),
            (WeightType::Q4_0, WeightType::Q4K, false),
            (WeightType::F16, WeightType::F16, true),
            (WeightType::F16, WeightType::Bf16, false),
            (WeightType::F16, WeightType::Q8_0, false),
            (WeightType::Bf16, WeightType::Mxfp4, false),
        ] {
            assert_eq!(of(a).shares_activations(&of(b)), share, "{isa:?} {a:?} {b:?}");
        }
    }
}
