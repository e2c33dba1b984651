// What a projector will take, before it is loaded: mtmd's own count has C++ linkage.

#include "mtmd.h"

#include <cstddef>
#include <map>

using usage_by_device = std::map<ggml_backend_dev_t, size_t>;

// Some releases count more than bytes.
static const usage_by_device & bytes_of(const usage_by_device & usage) {
    return usage;
}

template <class Usage> static auto bytes_of(const Usage & usage) -> decltype(usage.backend_mem_usage) const & {
    return usage.backend_mem_usage;
}

// Bytes of weights and of activations; 0: mtmd cannot use the file, and has logged why.
extern "C" size_t terrace_projector_memory(const char * path, mtmd_context_params params) {
    size_t bytes = 0;
    const auto usage = mtmd_get_memory_usage(path, params);
    for (const auto & [device, size] : bytes_of(usage)) {
        bytes += size;
    }
    return bytes;
}
