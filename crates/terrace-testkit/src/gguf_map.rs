//! Where in a GGUF file which field stands.
