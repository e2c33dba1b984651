// The memory that a context takes, as llama.cpp reports it. `llama_get_memory_breakdown` and the
// struct are declared in llama.cpp's `src/llama-ext.h`, which the -sys crate does not expose; the
// release is pinned.

#include <cstddef>
#include <map>

struct llama_context;
struct ggml_backend_buffer_type;

struct llama_memory_breakdown_data {
    size_t model   = 0;
    size_t context = 0;
    size_t compute = 0;
};

using llama_memory_breakdown = std::map<ggml_backend_buffer_type *, llama_memory_breakdown_data>;

llama_memory_breakdown llama_get_memory_breakdown(const llama_context * ctx);

// Sums the bytes of the cache and of the graphs' activations over all buffer types.
extern "C" void terrace_context_memory(const llama_context * ctx, size_t * cache, size_t * compute) {
    *cache = *compute = 0;
    for (const auto & part : llama_get_memory_breakdown(ctx)) {
        *cache += part.second.context;
        *compute += part.second.compute;
    }
}
