// What a projector will take, before it is loaded: mtmd's own count has C++ linkage.

#include "mtmd.h"

#include <cstddef>

// Bytes of weights and of activations; 0: mtmd cannot use the file, and has logged why.
extern "C" size_t terrace_projector_memory(const char * path, mtmd_context_params params) {
    size_t bytes = 0;
    for (const auto & [device, size] : mtmd_get_memory_usage(path, params).backend_mem_usage) {
        bytes += size;
    }
    return bytes;
}
