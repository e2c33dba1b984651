//! Which experts of streamed layers have copies in a device's memory: how many slots each layer gets of a budget. What is in
//! them is decided while a model runs, elsewhere.

mod slots;

pub use slots::{HotLayer, hot_slots};
