//! Here is a model and a machine: what lives where? Pure functions.
