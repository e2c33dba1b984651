//! Makes ggml compute with the store's bytes.
