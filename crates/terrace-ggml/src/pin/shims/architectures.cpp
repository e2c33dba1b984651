// The architectures that llama.cpp knows. The functions are declared with C++ linkage in llama.cpp's
// `src/llama-arch.h`, which the -sys crate does not expose.

#include "llama-arch.h"

#include <cstddef>
#include <vector>

// Returns the number of architectures; `out` gets the names of the first `capacity`, which live for ever.
extern "C" size_t terrace_architectures(const char ** out, size_t capacity) {
    const std::vector<llm_arch> all = llm_arch_all();
    for (size_t i = 0; i < all.size() && i < capacity; i++) {
        out[i] = llm_arch_name(all[i]);
    }
    return all.size();
}
