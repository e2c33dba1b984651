//! random_model
