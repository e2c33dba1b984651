// Checks grammars before llama.cpp uses them: what it does with them without allocating has no bounds (`bounded.cpp`).

#include "text.h"

#include "llama-grammar.h"
#include "unicode.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>

// Most alternatives of a character class, each of which is compared with all tokens of the vocabulary.
static const size_t CLASS = 10000;

// Most rules that begin with one another, and most elements that the search for rules that begin with themselves looks
// at: llama.cpp recurses for each rule, and visits it again for each place where it begins another one.
static const uint32_t DEPTH  = 2000;
static const uint64_t LOOKED = 20000000;

static bool ends(const llama_grammar_element & element) {
    return element.type == LLAMA_GRETYPE_END || element.type == LLAMA_GRETYPE_ALT;
}

static void check_classes(const llama_grammar_rule & rule) {
    size_t count = 0;
    for (const auto & element : rule) {
        const bool goes_on = element.type == LLAMA_GRETYPE_CHAR_ALT || element.type == LLAMA_GRETYPE_CHAR_RNG_UPPER;
        count = goes_on ? count + 1 : 1;
        if (count > CLASS) {
            throw std::runtime_error("a character class has more than " + std::to_string(CLASS) + " alternatives");
        }
    }
}

// Whether an alternative of the rule is empty, as `llama_grammar_detect_left_recursion` sees it.
static bool may_be_empty(const llama_grammar_rule & rule) {
    for (size_t i = 0; i < rule.size(); i++) {
        if (ends(rule[i]) && (i == 0 || ends(rule[i - 1]))) {
            return true;
        }
    }
    return false;
}

// The rules that a rule begins with, as that function visits them.
static std::vector<uint32_t> begins_with(const llama_grammar_rules & rules, const llama_grammar_rule & rule) {
    std::vector<uint32_t> found;
    bool                  begins = true;
    for (const auto & element : rule) {
        if (element.type == LLAMA_GRETYPE_RULE_REF && begins) {
            found.push_back(element.value);
            begins = may_be_empty(rules.at(element.value));
        } else {
            begins = ends(element);
        }
    }
    return found;
}

struct visited {
    enum { NEW, BEGUN, DONE } state = NEW;
    uint64_t looked = 0;
    uint32_t depth  = 0;
    // Its beginnings, and those that were looked at.
    std::vector<uint32_t> next;
    size_t                at = 0;
};

// Throws if the search for left recursion finds one, recurses too deeply, or takes too long.
static void check_beginnings(const llama_grammar_rules & rules) {
    std::vector<visited>  of(rules.size());
    std::vector<uint32_t> path;
    uint64_t              looked = 0;
    for (uint32_t first = 0; first < rules.size(); first++) {
        if (of[first].state == visited::NEW) {
            path.push_back(first);
        }
        while (!path.empty()) {
            visited & rule = of[path.back()];
            if (rule.state == visited::NEW) {
                rule.state = visited::BEGUN;
                rule.next  = begins_with(rules, rules[path.back()]);
            }
            if (rule.at == rule.next.size()) {
                rule.state  = visited::DONE;
                rule.looked = rules[path.back()].size();
                for (const uint32_t next : rule.next) {
                    rule.looked = std::min(rule.looked + of[next].looked, LOOKED + 1);
                    rule.depth  = std::max(rule.depth, of[next].depth + 1);
                }
                // What begins another rule is looked at with that.
                looked += path.size() == 1 ? rule.looked : 0;
                if (std::max(looked, rule.looked) > LOOKED) {
                    throw std::runtime_error("too many of its rules begin with the same rules");
                }
                if (rule.depth > DEPTH) {
                    throw std::runtime_error("more than " + std::to_string(DEPTH) + " of its rules begin with one another");
                }
                path.pop_back();
                continue;
            }
            const uint32_t next = rule.next[rule.at++];
            if (of[next].state == visited::BEGUN) {
                throw std::runtime_error("a rule begins with itself (left recursion)");
            }
            if (of[next].state == visited::NEW) {
                path.push_back(next);
            }
        }
    }
}

// Throws if the text is not a grammar with a rule `root`, or is one that takes llama.cpp too much.
extern "C" void terrace_check_grammar(terrace_text text) {
    const std::string source = text.string();
    {
        llama_grammar_parser parser;
        if (!parser.parse(source.c_str())) {
            throw std::runtime_error("it cannot be parsed");
        }
        std::for_each(parser.rules.begin(), parser.rules.end(), check_classes);
        check_beginnings(parser.rules);
    }
    llama_grammar * grammar = llama_grammar_init_impl(nullptr, source.c_str(), "root", false, nullptr, 0, nullptr, 0);
    if (grammar == nullptr) {
        throw std::runtime_error("it has no rule `root`");
    }
    llama_grammar_free_impl(grammar);
}

// Whether the text as a whole is one of a grammar that has been checked.
extern "C" bool terrace_grammar_accepts(terrace_text source, terrace_text text) {
    const std::string grammar_text = source.string();
    std::unique_ptr<llama_grammar, decltype(&llama_grammar_free_impl)> grammar(
        llama_grammar_init_impl(nullptr, grammar_text.c_str(), "root", false, nullptr, 0, nullptr, 0),
        llama_grammar_free_impl);
    if (!grammar) {
        throw std::runtime_error("it has no rule `root`");
    }
    // A character at a time: accepting a text throws where it stops matching.
    for (const uint32_t character : unicode_cpts_from_utf8(text.string())) {
        llama_grammar_accept(grammar.get(), character);
    }
    const auto & stacks = llama_grammar_get_stacks(grammar.get());
    return std::any_of(stacks.begin(), stacks.end(), [](const auto & stack) { return stack.empty(); });
}
