//! Which layers could be left out.

mod calibrate;
mod similarity;

pub use calibrate::{CalibrationPass, Calibrator};
