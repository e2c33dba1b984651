//! Speaks ggml and llama.cpp safely: raw ABI, thin results, owned handles.
