// llama.cpp's list of a model's tensors. The function is declared with C++ linkage in llama.cpp's `src/llama-model.h`,
// which the -sys crate does not expose.

#include "llama-model.h"

#include <cstddef>

// Returns the number of the model's tensors, and writes the first `capacity` of them to `out`.
extern "C" size_t terrace_model_tensors(const llama_model * model, ggml_tensor ** out, size_t capacity) {
    const auto & all = llama_internal_get_tensor_map(model);
    for (size_t i = 0; i < all.size() && i < capacity; i++) {
        out[i] = all[i].second;
    }
    return all.size();
}
