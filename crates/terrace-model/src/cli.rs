//! Readers of values that options in several crates have (feature `cli`).

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// Reads `on` or `off`.
pub fn on_off() -> impl TypedValueParser<Value = bool> {
    let values = [("on", "Yes"), ("off", "No")].map(|(name, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(values).map(|text| text == "on")
}

/// Reads a number from 0 to 1.
///
/// # Errors
/// The text is no such number.
pub fn share(text: &str) -> Result<f64, &'static str> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or("expected a number from 0 to 1")
}
