// Grammars: made of JSON schemas, and checked.

#include "text.h"

#include "json-schema-to-grammar.h"
#include "json.h"

#include <cstddef>
#include <stdexcept>

struct llama_vocab;
struct llama_grammar;

// llama.cpp's `src/llama-grammar.h`, which the -sys crate does not install.
llama_grammar * llama_grammar_init_impl(const llama_vocab * vocab, const char * grammar, const char * root, bool lazy,
                                        const char ** trigger_patterns, size_t n_trigger_patterns,
                                        const int * trigger_tokens, size_t n_trigger_tokens);
void llama_grammar_free_impl(llama_grammar * grammar);

extern "C" void terrace_schema_grammar(terrace_text schema, terrace_sink out) {
    out(json_schema_to_grammar(common_json::parse(schema.string())));
}

// Throws if the text is not a grammar with a rule `root`.
extern "C" void terrace_check_grammar(terrace_text text) {
    llama_grammar * grammar =
        llama_grammar_init_impl(nullptr, text.string().c_str(), "root", false, nullptr, 0, nullptr, 0);
    if (grammar == nullptr) {
        throw std::runtime_error("it cannot be parsed");
    }
    llama_grammar_free_impl(grammar);
}
