//! Rounding the numbers of estimates.

/// Rounds to four significant digits, which is more than the cost model is accurate to.
pub fn round(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10f64.powi(3 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}
