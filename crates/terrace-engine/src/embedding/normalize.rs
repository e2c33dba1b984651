//! Lengths of embeddings, as llama.cpp's `common_embd_normalize` makes them.

/// Normalises an embedding: -1 leaves it as it is, 0 makes its largest value that of 16 bits, 2 makes
/// its euclidean length 1, and other numbers that of their norm.
pub fn normalize(values: &mut [f32], norm: i32) {
    let sum = match norm {
        -1 => 1.0,
        0 => values.iter().fold(0.0, |most: f64, value| most.max(f64::from(value.abs()))) / 32760.0,
        2 => values.iter().fold(0.0, |sum, value| sum + f64::from(value * value)).sqrt(),
        norm => {
            let power = f64::from(norm);
            let sum = values.iter().fold(0.0, |sum, value| sum + f64::from(value.abs()).powf(power));
            sum.powf(1.0 / power)
        }
    };
    let factor = if sum > 0.0 { (1.0 / sum) as f32 } else { 0.0 };
    values.iter_mut().for_each(|value| *value *= factor);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(norm: i32) -> Vec<f32> {
        let mut values = [3.0, -4.0];
        normalize(&mut values, norm);
        values.to_vec()
    }

    #[test]
    fn lengths_are_those_of_the_norm() {
        assert_eq!(of(-1), [3.0, -4.0]);
        assert_eq!(of(2), [0.6, -0.8]);
        assert_eq!(of(0), [24570.0, -32760.0]);
        let seventh = (1.0_f64 / 7.0) as f32;
        assert_eq!(of(1), [3.0 * seventh, -4.0 * seventh]);
        let cubes = (27.0_f64 + 64.0).powf(1.0 / 3.0);
        assert_eq!(of(3)[0], 3.0 * (1.0 / cubes) as f32);
        let mut nothing = [0.0];
        normalize(&mut nothing, 2);
        assert_eq!(nothing, [0.0]);
    }
}
