// The memory that a context takes, as llama.cpp reports it. The function is declared with C++ linkage in llama.cpp's
// `src/llama-ext.h`, which the -sys crate does not expose.

#include "llama-ext.h"

#include <cstddef>

// Sums the bytes of the cache and of the graphs' activations over all buffer types.
extern "C" void terrace_context_memory(const llama_context * ctx, size_t * cache, size_t * compute) {
    *cache = *compute = 0;
    for (const auto & part : llama_get_memory_breakdown(ctx)) {
        *cache += part.second.context;
        *compute += part.second.compute;
    }
}
