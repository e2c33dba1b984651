//! Finds layers that could be skipped.

mod calibrate;
mod similarity;

pub use calibrate::{CalibrationPass, Calibrator};
