// llama.cpp asserts that a call leaves no more rows of logits than its context was made for, which has memory for them
// reserved whether or not they are ever asked for. Its buffers grow with the rows that a call leaves all the same, so
// the limit may. No function of llama.cpp changes it; PIN.md tells what was considered.

#include "llama-context.h"

#include <algorithm>

static llama_cparams & parameters(llama_context & ctx);

// An explicit instantiation may name a private member. The compiler compares the member's name and type, so that a
// release that changes one of them fails to build.
template <llama_cparams llama_context::*member> struct member_of {
    friend llama_cparams & parameters(llama_context & ctx) { return ctx.*member; }
};

template struct member_of<&llama_context::cparams>;

// Has the context take calls that leave up to `most` rows.
extern "C" void terrace_context_allow_outputs(llama_context * ctx, uint32_t most) {
    llama_cparams & params = parameters(*ctx);
    params.n_outputs_max = std::max(params.n_outputs_max, most);
}
