//! All about copies of experts on devices.

pub use super::by_size::{DeviceRoom, bands, beside_copies, copies_by_size, copies_within};
pub use super::division::{copies_on_all, division, places_on_all};
pub use super::hot_slots::{HotLayer, hot_slots};
pub use super::weighting::{
    LAYER_CURVE, LayerUse, ParseWeightingError, Scored, Uses, Weighting, scores, slots_by_worth, weights,
};
pub use super::worth::{Worth, learned_layer_use};
