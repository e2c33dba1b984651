//! gguf_write
