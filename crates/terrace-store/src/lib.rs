//! Give me these bytes, in this tier, by then.
