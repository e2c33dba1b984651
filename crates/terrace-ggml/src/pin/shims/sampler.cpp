// llama.cpp's samplers, with what its programs take of them.

#include "text.h"

#include "common.h"
#include "llama.h"
#include "sampling.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <memory>
#include <stdexcept>

struct terrace_trigger {
    int          kind;
    int32_t      token;
    terrace_text value;
};

// `Raw` of sampler.rs.
struct terrace_sampling {
    uint32_t seed;
    float    temp;
    float    dynatemp_range;
    float    dynatemp_exponent;
    int32_t  top_k;
    float    top_p;
    float    min_p;
    float    typical_p;
    float    top_n_sigma;
    float    xtc_probability;
    float    xtc_threshold;
    int32_t  min_keep;
    int32_t  repeat_last_n;
    float    repeat_penalty;
    float    frequency_penalty;
    float    presence_penalty;
    float    dry_multiplier;
    float    dry_base;
    int32_t  dry_allowed_length;
    int32_t  dry_penalty_last_n;
    int32_t  mirostat;
    float    mirostat_tau;
    float    mirostat_eta;
    float    adaptive_target;
    float    adaptive_decay;
    bool     ignore_eos;

    const terrace_text *     dry_breakers;
    size_t                   n_dry_breakers;
    const int32_t *          order;
    size_t                   n_order;
    const llama_logit_bias * bias;
    size_t                   n_bias;

    terrace_text            grammar;
    int                     grammar_kind;
    bool                    grammar_lazy;
    const terrace_trigger * triggers;
    size_t                  n_triggers;
    const terrace_text *    preserved;
    size_t                  n_preserved;
    terrace_text            generation_prompt;

    int32_t              thought_tokens;
    terrace_text         thought_start;
    const terrace_text * thought_ends;
    size_t               n_thought_ends;
    terrace_text         thought_message;
};

// The token that is exactly this text, if there is one.
static llama_token single(const llama_vocab * vocab, const std::string & text) {
    const auto ids = common_tokenize(vocab, text, false, true);
    return ids.size() == 1 ? ids[0] : LLAMA_TOKEN_NULL;
}

static void constrain(const llama_vocab * vocab, const terrace_sampling & in, common_params_sampling & params) {
    params.grammar      = common_grammar((common_grammar_type) in.grammar_kind, in.grammar.string());
    params.grammar_lazy = in.grammar_lazy;
    for (size_t i = 0; i < in.n_preserved; i++) {
        const llama_token token = single(vocab, in.preserved[i].string());
        if (token != LLAMA_TOKEN_NULL) {
            params.preserved_tokens.insert(token);
        }
    }
    for (size_t i = 0; i < in.n_triggers; i++) {
        const auto &           from = in.triggers[i];
        common_grammar_trigger trigger;
        trigger.type  = (common_grammar_trigger_type) from.kind;
        trigger.value = from.value.string();
        trigger.token = from.token;
        // A word that is a token is recognised as that. Its text is otherwise not seen.
        if (trigger.type == COMMON_GRAMMAR_TRIGGER_TYPE_WORD) {
            const llama_token token = single(vocab, trigger.value);
            if (token != LLAMA_TOKEN_NULL && params.preserved_tokens.count(token) > 0) {
                trigger.type  = COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN;
                trigger.token = token;
            }
        }
        params.grammar_triggers.push_back(trigger);
    }
    params.generation_prompt = in.generation_prompt.string();
}

static void limit_thoughts(const llama_vocab * vocab, const terrace_sampling & in, common_params_sampling & params) {
    if (in.thought_start.len == 0 || in.n_thought_ends == 0) {
        return;
    }
    params.reasoning_budget_tokens = in.thought_tokens;
    params.reasoning_budget_start  = common_tokenize(vocab, in.thought_start.string(), false, true);
    for (size_t i = 0; i < in.n_thought_ends; i++) {
        params.reasoning_budget_end.push_back(common_tokenize(vocab, in.thought_ends[i].string(), false, true));
    }
    params.reasoning_budget_forced =
        common_tokenize(vocab, in.thought_message.string() + in.thought_ends[0].string(), false, true);
}

// common_sampler_init leaves the grammar behind if what the prompt already has of the answer does not fit it, or takes
// too much. That is therefore tried before.
static void rehearse(const llama_vocab * vocab, const common_params_sampling & params) {
    const std::string & begun = params.generation_prompt;
    if (begun.empty() || params.grammar_lazy || !common_grammar_needs_prefill(params.grammar)) {
        return;
    }
    const std::string &  text = common_grammar_value(params.grammar);
    const std::unique_ptr<llama_sampler, void (*)(llama_sampler *)> grammar(
        llama_sampler_init_grammar(vocab, text.c_str(), "root"), llama_sampler_free);
    if (grammar == nullptr) {
        throw std::runtime_error("failed to parse grammar");
    }
    bool first = true;
    for (const llama_token token : common_tokenize(vocab, begun, false, true)) {
        // As common_sampler_init skips a space that the tokenizer adds.
        const std::string piece = common_token_to_piece(vocab, token, true);
        const bool added = first && std::isspace((unsigned char) piece[0]) && !std::isspace((unsigned char) begun[0]);
        first = false;
        if (!added) {
            llama_sampler_accept(grammar.get(), token);
        }
    }
}

extern "C" common_sampler * terrace_sampler_new(const llama_model * model, const terrace_sampling * from) {
    const terrace_sampling & in    = *from;
    const llama_vocab *      vocab = llama_model_get_vocab(model);

    common_params_sampling params;
    params.no_perf            = true;
    params.seed               = in.seed;
    params.temp               = in.temp;
    params.dynatemp_range     = in.dynatemp_range;
    params.dynatemp_exponent  = in.dynatemp_exponent;
    params.top_k              = in.top_k;
    params.top_p              = in.top_p;
    params.min_p              = in.min_p;
    params.typ_p              = in.typical_p;
    params.top_n_sigma        = in.top_n_sigma;
    params.xtc_probability    = in.xtc_probability;
    params.xtc_threshold      = in.xtc_threshold;
    params.min_keep           = in.min_keep;
    params.penalty_last_n     = in.repeat_last_n;
    params.penalty_repeat     = in.repeat_penalty;
    params.penalty_freq       = in.frequency_penalty;
    params.penalty_present    = in.presence_penalty;
    params.dry_multiplier     = in.dry_multiplier;
    params.dry_base           = in.dry_base;
    params.dry_allowed_length = in.dry_allowed_length;
    params.dry_penalty_last_n = in.dry_penalty_last_n;
    params.mirostat           = in.mirostat;
    params.mirostat_tau       = in.mirostat_tau;
    params.mirostat_eta       = in.mirostat_eta;
    params.adaptive_target    = in.adaptive_target;
    params.adaptive_decay     = in.adaptive_decay;

    params.dry_sequence_breakers.clear();
    for (size_t i = 0; i < in.n_dry_breakers; i++) {
        params.dry_sequence_breakers.push_back(in.dry_breakers[i].string());
    }
    params.samplers.clear();
    for (size_t i = 0; i < in.n_order; i++) {
        params.samplers.push_back((common_sampler_type) in.order[i]);
    }
    params.logit_bias.assign(in.bias, in.bias + in.n_bias);
    if (in.ignore_eos) {
        for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); token++) {
            if (llama_vocab_is_eog(vocab, token)) {
                params.logit_bias.push_back({ token, -INFINITY });
            }
        }
    }
    if (in.grammar.len > 0) {
        constrain(vocab, in, params);
        rehearse(vocab, params);
    }
    limit_thoughts(vocab, in, params);
    return common_sampler_init(model, params);
}

extern "C" void terrace_sampler_free(common_sampler * sampler) {
    common_sampler_free(sampler);
}

// Notes a token of the prompt, for penalties.
extern "C" void terrace_sampler_see(common_sampler * sampler, llama_token token) {
    common_sampler_accept(sampler, token, false);
}

// Chooses a token from a row of logits, and notes it.
extern "C" llama_token terrace_sampler_sample(common_sampler * sampler, llama_context * context, int row) {
    const llama_token token = common_sampler_sample(sampler, context, row);
    common_sampler_accept(sampler, token, true);
    return token;
}

// The candidates that the samplers have left for the token chosen last, of which as many as there is room
// for are written, the most likely first. Returns that number; `chosen` gets the token's own probability.
extern "C" size_t terrace_sampler_candidates(
        common_sampler * sampler, int32_t * tokens, float * probs, size_t room, float * chosen) {
    const auto * left = common_sampler_get_candidates(sampler, true);
    *chosen = left->selected >= 0 ? left->data[left->selected].p : 0.0f;
    const size_t count = std::min(room, left->size);
    for (size_t i = 0; i < count; i++) {
        tokens[i] = left->data[i].id;
        probs[i]  = left->data[i].p;
    }
    return count;
}
