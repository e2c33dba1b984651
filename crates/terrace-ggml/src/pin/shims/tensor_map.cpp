// llama.cpp's list of a model's tensors has C++ linkage only. `llama_internal_get_tensor_map` is
// declared in llama.cpp's `src/llama-model.h`, which the -sys crate does not expose.

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

struct llama_model;
struct ggml_tensor;

const std::vector<std::pair<std::string, ggml_tensor *>> & llama_internal_get_tensor_map(const llama_model * model);

// Returns the number of the model's tensors, and writes the first `capacity` of them to `out`.
extern "C" size_t terrace_model_tensors(const llama_model * model, ggml_tensor ** out, size_t capacity) {
    const auto & all = llama_internal_get_tensor_map(model);
    for (size_t i = 0; i < all.size() && i < capacity; i++) {
        out[i] = all[i].second;
    }
    return all.size();
}
