//! Means and their standard errors.

/// A mean and its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean.
    pub value: f64,
    /// Its standard error; `None` if there is no variance.
    pub error: Option<f64>,
}

impl Mean {
    /// Computes the mean of these values.
    pub fn of(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let value = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|v| (v - value) * (v - value)).sum::<f64>() / n;
        Self { value, error: (variance > 0.0).then(|| (variance / (n - 1.0)).sqrt()) }
    }

    /// Exponential of a mean of logarithms, with the error propagated to first order.
    pub fn exp(self) -> Self {
        let value = self.value.exp();
        Self { value, error: self.error.map(|error| error * value) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_have_their_standard_error() {
        let mean = Mean::of(&[1.0, 2.0, 3.0, 6.0]);
        assert_eq!(mean.value, 3.0);
        // Variance 14/4 around the mean, over n - 1.
        assert!((mean.error.unwrap() - (3.5_f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(Mean::of(&[2.0, 2.0]).error, None);
        let exp = mean.exp();
        assert_eq!((exp.value, exp.error.unwrap()), (3.0_f64.exp(), mean.error.unwrap() * 3.0_f64.exp()));
    }
}
