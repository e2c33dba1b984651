use crate::oracle::Random;
use proptest::prelude::*;
use terrace_kernels::Isa;
use terrace_kernels::glu::{Activation, Glu, GluRow};

const ALL: [Activation; 3] =
    [Activation::Gelu, Activation::GeluQuick, Activation::SwigluOai { alpha: 1.702, limit: 7.0 }];

/// A row's inputs: gates, what they multiply, and biases of both.
#[derive(Clone)]
pub struct Inputs {
    rows: [Vec<f32>; 4],
    biased: [bool; 2],
}

impl Inputs {
    pub fn new(n: usize, size: f32, biased: [bool; 2], seed: u64) -> Self {
        let mut random = Random(seed);
        let mut row = |size: f32| (0..n).map(|_| random.float() * size).collect();
        Self { rows: [row(size), row(size), row(1.0), row(1.0)], biased }
    }

    fn len(&self) -> usize {
        self.rows[0].len()
    }

    fn biases(&self) -> [*const f32; 2] {
        [0, 1].map(|i| if self.biased[i] { self.rows[2 + i].as_ptr() } else { std::ptr::null() })
    }

    /// The unit's results for the elements of a range.
    fn run(&self, glu: Glu, range: std::ops::Range<usize>) -> Vec<f32> {
        let mut out = vec![f32::NAN; range.len()];
        let at = |row: *const f32| if row.is_null() { row } else { row.wrapping_add(range.start) };
        let row = GluRow {
            gate: at(self.rows[0].as_ptr()),
            up: at(self.rows[1].as_ptr()),
            biases: self.biases().map(at),
            out: out.as_mut_ptr(),
        };
        // SAFETY: the rows have the elements.
        unsafe { glu.run(row, range.len()) };
        out
    }

    fn expected(&self, activation: Activation, i: usize) -> f64 {
        let input = |row: usize| {
            let bias = if self.biased[row] { self.rows[2 + row][i] } else { 0.0 };
            f64::from(self.rows[row][i] + bias)
        };
        let (x, y) = (input(0), input(1));
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        match activation {
            Activation::Gelu => {
                let inner = (2.0 / std::f64::consts::PI).sqrt() * x * (1.0 + 0.044_715 * x * x);
                0.5 * x * (1.0 + inner.tanh()) * y
            }
            Activation::GeluQuick => x * sigmoid(1.702 * x) * y,
            Activation::SwigluOai { alpha, limit } => {
                let (alpha, limit) = (f64::from(alpha), f64::from(limit));
                let x = x.min(limit);
                x * sigmoid(alpha * x) * (y.clamp(-limit, limit) + 1.0)
            }
        }
    }

    /// Compares every unit's results with f64, and with those of each element alone and of a row that is overwritten.
    pub fn check_with(&self, available: &[Isa]) {
        for (activation, &isa) in ALL.into_iter().flat_map(|all| available.iter().map(move |isa| (all, isa)))
        {
            let glu = Glu::on(activation, isa);
            let whole = self.run(glu, 0..self.len());
            for (i, result) in whole.iter().enumerate() {
                let expected = self.expected(activation, i);
                // Where a sigmoid is nearly 0, its argument's rounding is much of it.
                let error = (f64::from(*result) - expected).abs();
                assert!(
                    error <= 4e-6 * expected.abs() + 1e-6,
                    "{activation:?} {isa:?}: {result}, not {expected}"
                );
                assert_eq!(
                    self.run(glu, i..i + 1)[0].to_bits(),
                    result.to_bits(),
                    "{activation:?} {isa:?} {i}"
                );
            }
            let mut gates = self.rows[0].clone();
            let row = GluRow {
                gate: gates.as_ptr(),
                up: self.rows[1].as_ptr(),
                biases: self.biases(),
                out: gates.as_mut_ptr(),
            };
            // SAFETY: the rows have the elements.
            unsafe { glu.run(row, self.len()) };
            assert_eq!(gates, whole);
        }
    }
}

proptest! {
    #[test]
    fn units_agree_with_f64_and_with_each_part(
        n in 1usize..70,
        size in prop::sample::select(vec![0.1f32, 3.0, 40.0]),
        biased in any::<[bool; 2]>(),
        seed in any::<u64>(),
    ) {
        Inputs::new(n, size, biased, seed).check_with(Isa::available());
    }
}

#[test]
fn what_is_no_number_stays_so_and_large_gates_end() {
    for (activation, &isa) in
        ALL.into_iter().flat_map(|all| Isa::available().iter().map(move |isa| (all, isa)))
    {
        let mut inputs = Inputs::new(20, 1.0, [false; 2], 1);
        inputs.rows[0][..4].copy_from_slice(&[f32::NAN, 1e30, -1e30, 0.0]);
        inputs.rows[1][4] = f32::NAN;
        let out = inputs.run(Glu::on(activation, isa), 0..20);
        assert!(out[0].is_nan() && out[4].is_nan(), "{activation:?} {isa:?}: {out:?}");
        let finite = [1, 2, 3].into_iter().chain(5..20).all(|i| out[i].is_finite());
        assert!(finite && out[2].abs() < 1e-6 && out[3] == 0.0, "{activation:?} {isa:?}: {out:?}");
    }
}
