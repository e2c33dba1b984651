//! Broken files out of good ones.
