// Hidden states, and the layers that predict from them. The functions are declared with C++ linkage in
// llama.cpp's `src/llama-ext.h`, which the -sys crate does not expose; the release is pinned.

#include "llama-ext.h"

// Has each call leave hidden states: those of tokens that leave logits, or of all.
extern "C" void terrace_context_keep_hidden(llama_context * ctx, bool outputs_only) {
    llama_set_embeddings_nextn(ctx, true, outputs_only);
}

// Chooses the MTP layer that a context of MTP layers computes.
extern "C" void terrace_context_mtp_layer(llama_context * ctx, int32_t layer) {
    llama_set_nextn_layer_offset(ctx, layer);
}

// The rows that the last call left, in the order of the batch; null if it left none. Waits for them.
extern "C" const float * terrace_context_hidden(llama_context * ctx) {
    return llama_get_embeddings_nextn(ctx);
}
