#pragma once

// What releases of `common/chat.h` differ in. The compiler chooses by the types and members that a release has.

#include "chat.h"

#include <map>
#include <memory>
#include <string>
#include <utility>

using json = common_json;

// Texts that a template is made of.
struct template_source {
    std::string source;
    std::string bos;
    std::string eos;

    common_chat_templates_ptr init() const { return common_chat_templates_init(nullptr, source, bos, eos); }
};

struct terrace_templates {
    template_source           of;
    common_chat_templates_ptr common;
};

// What templates can do: booleans, in a map or an object.
inline void add_caps(json & caps, const std::map<std::string, bool> & all) {
    for (const auto & [name, value] : all) {
        caps[name] = value;
    }
}

inline void add_caps(json & caps, const json & all) {
    for (const auto & [name, value] : all.items()) {
        if (value.is_boolean()) {
            caps[name] = value.template get<bool>();
        }
    }
}

// A prompt: a text, or parts of one.
inline const std::string & text_of(const std::string & prompt) {
    return prompt;
}

template <class Prompt> auto text_of(const Prompt & prompt) -> decltype(prompt.str()) {
    return prompt.str();
}

// A text as input of a parser: as it is, or in a structure.
inline void assign(std::string & to, const std::string & text) {
    to = text;
}

template <class Input> void assign(Input & to, const std::string & text) {
    to = Input(text);
}

// A parser of answers as a text: as `common` writes it, or, if parsers cannot be written, what it is made of.
inline std::string saved(const std::string & parser, const template_source &, const std::string &) {
    return parser;
}

inline std::string saved(const common_peg_arena & parser, const template_source & of, const std::string & request) {
    if (parser.empty()) {
        return "";
    }
    json kept = json::object();
    kept["source"]  = of.source;
    kept["bos"]     = of.bos;
    kept["eos"]     = of.eos;
    kept["request"] = request;
    return kept.dump();
}

// The parser that a rendered conversation comes with, where it is one and no text.
template <class Params> auto parser_of(Params & params, int) -> decltype(common_peg_arena(params.parser), params.parser)& {
    return params.parser;
}

template <class Params> common_peg_arena & parser_of(Params &, long) {
    static common_peg_arena none;
    return none;
}

inline common_peg_arena & parser_of(common_chat_params & params) {
    return parser_of(params, 0);
}

// Reads what `saved` has written.
template <class Params, class Again>
auto load(Params & params, const std::string & text, const Again &, int) -> decltype((void) params.parser.load(text)) {
    params.parser.load(text);
}

template <class Params, class Again> void load(Params & params, const std::string & text, const Again & again, long) {
    params.parser = again(text);
}

template <class Again> void load(common_chat_parser_params & params, const std::string & text, const Again & again) {
    load(params, text, again, 0);
}

// How answers are read, where that is not settled when the conversation is rendered.
template <class Params>
auto set_reading(Params & params, common_reasoning_format format, bool calls, bool continued, int)
    -> decltype((void) params.parse_tool_calls) {
    params.reasoning_format = format;
    params.parse_tool_calls = calls;
    params.is_continuation  = continued;
}

template <class Params> void set_reading(Params &, common_reasoning_format, bool, bool, long) {}

inline void set_reading(common_chat_parser_params & params, common_reasoning_format format, bool calls, bool continued) {
    set_reading(params, format, calls, continued, 0);
}

template <class Params>
auto parsed(const std::string & text, bool more, const Params & params, int)
    -> decltype(common_chat_parse(text, more, params)) {
    return common_chat_parse(text, more, params);
}

template <class Params> common_chat_msg parsed(const std::string & text, bool more, const Params & params, long) {
    return common_chat_parse(decltype(params.generation_prompt)(text), more, params);
}

inline common_chat_msg parsed(const std::string & text, bool more, const common_chat_parser_params & params) {
    return parsed(text, more, params, 0);
}
