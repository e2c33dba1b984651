// llama.cpp asserts that a call leaves no more rows of logits than its context was made for, which has
// memory for them reserved whether or not they are ever asked for. Its buffers grow with the rows that a
// call leaves all the same, so the limit may. `llama_context` is declared in llama.cpp's
// `src/llama-context.h`; the release is pinned.

#include "llama-context.h"

#include <algorithm>

// Has the context take calls that leave up to `most` rows.
extern "C" void terrace_context_allow_outputs(llama_context * ctx, uint32_t most) {
    // The context's own member, which is not const.
    auto & params = const_cast<llama_cparams &>(ctx->get_cparams());
    params.n_outputs_max = std::max(params.n_outputs_max, most);
}
