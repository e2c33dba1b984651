//! Functions that may throw, declared so that an exception may leave them. Within
//! [`guard`](crate::cxx::guard) only.
//!
//! Their contracts are those of the bindings' functions of the same names, and that an exception
//! meets a `catch` before it meets a frame of Rust that is not the guarded closure's.

use llama_cpp_sys_2::{
    ggml_backend_buffer_t, ggml_backend_dev_t, ggml_backend_t, ggml_cgraph, ggml_status, ggml_tensor,
    llama_adapter_lora, llama_batch, llama_context, llama_context_params, llama_memory_t, llama_model,
    llama_model_params, llama_model_quantize_params, llama_pos, llama_seq_id, llama_state_seq_flags,
    llama_token, llama_vocab, mtmd_bitmap, mtmd_context, mtmd_context_params, mtmd_input_chunk,
    mtmd_input_chunks, mtmd_input_part,
};
#[cfg(feature = "testing")]
use llama_cpp_sys_2::{gguf_context, llama_model_set_tensor_data_t};
use std::ffi::{c_char, c_void};

/// Declares functions, and has the compiler compare them with the bindings' declarations.
macro_rules! calls {
    ($($(#[$cfg:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?;)*) => {
        unsafe extern "C-unwind" {
            $($(#[$cfg])* pub fn $name($($arg: $ty),*) $(-> $ret)?;)*
        }

        #[expect(clippy::disallowed_methods, reason = "named, not called")]
        const _: () = {
            $($(#[$cfg])* let _: unsafe extern "C" fn($($ty),*) $(-> $ret)? = llama_cpp_sys_2::$name;)*
        };
    };
}

calls! {
    fn llama_model_load_from_file(path: *const c_char, params: llama_model_params) -> *mut llama_model;
    #[cfg(feature = "testing")]
    fn llama_model_init_from_user(
        metadata: *mut gguf_context,
        set_tensor_data: llama_model_set_tensor_data_t,
        data: *mut c_void,
        params: llama_model_params,
    ) -> *mut llama_model;
    fn llama_init_from_model(model: *mut llama_model, params: llama_context_params) -> *mut llama_context;
    fn llama_model_quantize(from: *const c_char, to: *const c_char, params: *const llama_model_quantize_params) -> u32;
    fn llama_model_meta_val_str(model: *const llama_model, key: *const c_char, out: *mut c_char, room: usize) -> i32;
    fn llama_model_chat_template(model: *const llama_model, name: *const c_char) -> *const c_char;

    fn llama_adapter_lora_init(model: *mut llama_model, path: *const c_char) -> *mut llama_adapter_lora;
    fn llama_set_adapters_lora(
        context: *mut llama_context,
        adapters: *mut *mut llama_adapter_lora,
        count: usize,
        scales: *mut f32,
    ) -> i32;

    fn llama_decode(context: *mut llama_context, batch: llama_batch) -> i32;
    fn llama_synchronize(context: *mut llama_context);
    fn llama_memory_clear(memory: llama_memory_t, data: bool);
    fn llama_memory_seq_rm(memory: llama_memory_t, sequence: llama_seq_id, from: llama_pos, to: llama_pos) -> bool;
    fn llama_memory_seq_pos_min(memory: llama_memory_t, sequence: llama_seq_id) -> llama_pos;
    fn llama_memory_seq_pos_max(memory: llama_memory_t, sequence: llama_seq_id) -> llama_pos;
    fn llama_state_seq_get_size_ext(
        context: *mut llama_context,
        sequence: llama_seq_id,
        flags: llama_state_seq_flags,
    ) -> usize;
    fn llama_state_seq_get_data_ext(
        context: *mut llama_context,
        out: *mut u8,
        room: usize,
        sequence: llama_seq_id,
        flags: llama_state_seq_flags,
    ) -> usize;
    fn llama_state_seq_set_data_ext(
        context: *mut llama_context,
        data: *const u8,
        size: usize,
        sequence: llama_seq_id,
        flags: llama_state_seq_flags,
    ) -> usize;

    fn llama_tokenize(
        vocab: *const llama_vocab,
        text: *const c_char,
        len: i32,
        tokens: *mut llama_token,
        room: i32,
        add_special: bool,
        parse_special: bool,
    ) -> i32;
    fn llama_token_to_piece(
        vocab: *const llama_vocab,
        token: llama_token,
        out: *mut c_char,
        room: i32,
        strip: i32,
        special: bool,
    ) -> i32;

    fn llama_set_causal_attn(context: *mut llama_context, causal: bool);
    fn mtmd_init_from_file(
        path: *const c_char,
        model: *const llama_model,
        params: mtmd_context_params,
    ) -> *mut mtmd_context;
    fn mtmd_bitmap_init(width: u32, height: u32, pixels: *const u8) -> *mut mtmd_bitmap;
    fn mtmd_input_chunks_init() -> *mut mtmd_input_chunks;
    fn mtmd_input_chunk_copy(chunk: *const mtmd_input_chunk) -> *mut mtmd_input_chunk;
    fn mtmd_tokenize_from_parts(
        context: *const mtmd_context,
        chunks: *mut mtmd_input_chunks,
        parts: *const *const mtmd_input_part,
        count: usize,
        add_special: bool,
    ) -> i32;
    fn mtmd_encode_chunk(context: *mut mtmd_context, chunk: *const mtmd_input_chunk) -> i32;

    fn ggml_backend_dev_init(device: ggml_backend_dev_t, params: *const c_char) -> ggml_backend_t;
    fn ggml_backend_graph_compute(backend: ggml_backend_t, graph: *mut ggml_cgraph) -> ggml_status;
    fn ggml_backend_graph_compute_async(backend: ggml_backend_t, graph: *mut ggml_cgraph) -> ggml_status;
    fn ggml_backend_synchronize(backend: ggml_backend_t);
    fn ggml_backend_free(backend: ggml_backend_t);
    fn ggml_backend_buffer_clear(buffer: ggml_backend_buffer_t, value: u8);
    fn ggml_backend_tensor_set_async(
        backend: ggml_backend_t,
        tensor: *mut ggml_tensor,
        data: *const c_void,
        offset: usize,
        size: usize,
    );
    fn ggml_backend_tensor_set(tensor: *mut ggml_tensor, data: *const c_void, offset: usize, size: usize);
    fn ggml_backend_tensor_get(tensor: *const ggml_tensor, data: *mut c_void, offset: usize, size: usize);
    fn ggml_backend_tensor_get_async(
        backend: ggml_backend_t,
        tensor: *const ggml_tensor,
        data: *mut c_void,
        offset: usize,
        size: usize,
    );
}

unsafe extern "C-unwind" {
    /// `memory_breakdown.cpp`: bytes of a context's cache and of its graphs' activations.
    pub fn terrace_context_memory(context: *const llama_context, cache: *mut usize, compute: *mut usize);
    /// `hidden.cpp`: rows of hidden states that the last call left, once they are computed.
    pub fn terrace_context_hidden(context: *mut llama_context) -> *const f32;
    /// `tensor_map.cpp`: the number of a model's tensors, of which `out` gets the first `capacity`.
    pub fn terrace_model_tensors(
        model: *const llama_model,
        out: *mut *mut ggml_tensor,
        capacity: usize,
    ) -> usize;
    /// `architectures.cpp`: the number of llama.cpp's architectures, and the names of the first
    /// `capacity` in `out`.
    #[cfg(feature = "testing")]
    pub fn terrace_architectures(out: *mut *const c_char, capacity: usize) -> usize;
}
