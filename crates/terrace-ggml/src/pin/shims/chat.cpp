// llama.cpp's chat templates and the readers of answers, over JSON.

#include "text.h"

#include "chat.h"
#include "chat_releases.h"
#include "jinja/lexer.h"
#include "jinja/parser.h"
#include "log.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <regex>

extern "C" void terrace_silence_common() {
    common_log_set_verbosity_thold(-1);
}

extern "C" terrace_templates * terrace_chat_templates(terrace_text source, terrace_text bos, terrace_text eos) {
    auto templates = std::make_unique<terrace_templates>(terrace_templates{
        { source.string(), bos.string(), eos.string() }, nullptr });
    try {
        templates->common = templates->of.init();
    } catch (const std::exception &) {
        // `common` throws a copy of the exception's base, which has no text. The parser's own exception has one.
        jinja::parse_from_tokens(jinja::lexer().tokenize(source.string()));
        throw;
    }
    return templates.release();
}

extern "C" void terrace_chat_templates_free(terrace_templates * templates) {
    delete templates;
}

// Whether the templates are one that llama.cpp writes without Jinja, by its name. `common` makes Jinja of `chatml`.
static bool is_named(const common_chat_templates * templates) {
    const std::string source = common_chat_templates_source(templates);
    std::vector<const char *> names(llama_chat_builtin_templates(nullptr, 0));
    llama_chat_builtin_templates(names.data(), names.size());
    return std::find(names.begin(), names.end(), source) != names.end();
}

// An object of booleans.
extern "C" void terrace_chat_caps(const terrace_templates * templates, terrace_sink out) {
    json caps = json::object();
    add_caps(caps, common_chat_templates_get_caps(templates->common.get()));
    caps["supports_thinking"] = common_chat_templates_support_enable_thinking(templates->common.get());
    out(caps.dump());
}

static std::string text_or(const json & object, const char * name, const std::string & otherwise) {
    return object.contains(name) && object.at(name).is_string() ? object.at(name).get<std::string>() : otherwise;
}

static bool flag_or(const json & object, const char * name, bool otherwise) {
    return object.contains(name) && object.at(name).is_boolean() ? object.at(name).get<bool>() : otherwise;
}

static json texts(const std::vector<std::string> & values) {
    json array = json::array();
    for (const auto & value : values) {
        array.push_back(value);
    }
    return array;
}

static json applied(const common_chat_params & params, const template_source & of, const std::string & request) {
    json triggers = json::array();
    for (const auto & trigger : params.grammar_triggers) {
        json one = json::object();
        one["kind"]  = (int) trigger.type;
        one["value"] = trigger.value;
        one["token"] = trigger.token;
        triggers.push_back(one);
    }
    json result = json::object();
    result["prompt"]            = text_of(params.prompt);
    result["grammar"]           = params.grammar;
    result["grammar_lazy"]      = params.grammar_lazy;
    result["grammar_triggers"]  = triggers;
    result["preserved_tokens"]  = texts(params.preserved_tokens);
    result["additional_stops"]  = texts(params.additional_stops);
    result["generation_prompt"] = params.generation_prompt;
    result["supports_thinking"] = params.supports_thinking;
    result["thinking_start"]    = params.thinking_start_tag;
    result["thinking_ends"]     = texts(params.thinking_end_tags);
    result["format"]            = (int) params.format;
    result["parser"]            = saved(params.parser, of, request);
    return result;
}

// Where a call has to be made, `common` allows a text before it, and several calls in templates without a section for
// calls even where one is wanted. A small model then never comes to its call; and if JSON is allowed in its place, the
// text may be anything.
static void tighten(common_chat_params & params, const common_chat_templates_inputs & inputs) {
    if (inputs.tools.empty() || params.grammar_lazy) {
        return;
    }
    if (inputs.tool_choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED) {
        params.grammar = std::regex_replace(params.grammar, std::regex(" until-[0-9]+\\??((?: space)*) (tool-calls?)\\b"),
                                            "$1 $2");
    }
    if (!inputs.parallel_tool_calls) {
        params.grammar = std::regex_replace(params.grammar, std::regex("tool-calls ::= \\(tool-call space\\)\\+"),
                                            "tool-calls ::= tool-call space");
    }
}

static common_chat_templates_inputs inputs_of(const common_chat_templates * templates, const std::string & request) {
    const json in = json::parse(request);
    common_chat_templates_inputs inputs;
    inputs.messages              = common_chat_msgs_parse_oaicompat(in.at("messages"));
    inputs.add_generation_prompt = flag_or(in, "add_generation_prompt", true);
    inputs.enable_thinking       = flag_or(in, "enable_thinking", true);
    inputs.parallel_tool_calls   = flag_or(in, "parallel_tool_calls", false);
    inputs.grammar               = text_or(in, "grammar", "");
    inputs.json_schema           = text_or(in, "json_schema", "");
    inputs.reasoning_format      = common_reasoning_format_from_name(text_or(in, "reasoning_format", "none"));
    inputs.tool_choice           = common_chat_tool_choice_parse_oaicompat(text_or(in, "tool_choice", "auto"));
    if (in.contains("tools")) {
        inputs.tools = common_chat_tools_parse_oaicompat(in.at("tools"));
    }
    if (in.contains("continue_final_message")) {
        inputs.continue_final_message = common_chat_continuation_parse(in.at("continue_final_message"));
    }
    if (in.contains("chat_template_kwargs")) {
        for (const auto & [name, value] : in.at("chat_template_kwargs").items()) {
            inputs.chat_template_kwargs[name] = value.get<std::string>();
        }
    }
    // Hugging Face's apply_chat_template defines it in any case, and templates are written for that.
    if (inputs.tools.empty()) {
        inputs.chat_template_kwargs.emplace("tools", "null");
    }
    inputs.use_jinja = !is_named(templates);
    if (!inputs.use_jinja && inputs.continue_final_message != COMMON_CHAT_CONTINUATION_NONE) {
        throw std::runtime_error("llama.cpp's template of this name cannot go on with the last turn");
    }
    return inputs;
}

// Renders a conversation. `request`: messages and tools as in OpenAI's API, tool_choice (auto, required, none),
// parallel_tool_calls, add_generation_prompt, continue_final_message, enable_thinking, reasoning_format, grammar,
// json_schema (text), chat_template_kwargs (values as JSON text).
extern "C" void terrace_chat_apply(const terrace_templates * templates, terrace_text request, terrace_sink out) {
    const std::string text   = request.string();
    const auto        inputs = inputs_of(templates->common.get(), text);
    common_chat_params params = common_chat_templates_apply(templates->common.get(), inputs);
    tighten(params, inputs);
    out(applied(params, templates->of, text).dump());
}

// The parser of answers to a conversation, of which `saved` has kept the template and the request.
static common_peg_arena parser_again(const std::string & kept) {
    const json in = json::parse(kept);
    const template_source of = { text_or(in, "source", ""), text_or(in, "bos", ""), text_or(in, "eos", "") };
    const auto templates = of.init();
    auto params = common_chat_templates_apply(templates.get(), inputs_of(templates.get(), text_or(in, "request", "")));
    return std::move(parser_of(params));
}

// Reads an answer while it grows.
struct terrace_answer_reader {
    common_chat_parser_params                  params;
    // How JSON is read, until it is clear whether the answer is that or a call.
    std::unique_ptr<common_chat_parser_params> json;
    common_chat_msg                            message;
    std::string                                text;
};

// What a text is by one of the two forms of its answer; nothing if it is not of that form. A text that is neither, which
// is not complete, is read as far as it goes elsewhere: whether it fits would not be seen.
static std::optional<common_chat_msg> fitting(const std::string & text, const common_chat_parser_params & params) {
    try {
        return parsed(text, false, params);
    } catch (const std::runtime_error &) {
        return std::nullopt;
    }
}

static bool is_blank(const std::string & text) {
    return text.find_first_not_of(" \t\r\n") == std::string::npos;
}

static common_chat_msg read_answer(terrace_answer_reader & reader, bool more) {
    if (reader.json) {
        auto       call     = fitting(reader.text, reader.params);
        const auto json     = fitting(reader.text, *reader.json);
        const bool may_call = call && is_blank(call->content);
        const bool calls    = may_call && !call->tool_calls.empty();
        if (more && !calls && (json ? may_call : !call)) {
            // The beginning of both, or of what cannot be read yet.
            common_chat_msg begun;
            begun.role = "assistant";
            if (call) {
                begun.reasoning_content = call->reasoning_content;
            }
            return begun;
        }
        if (json && !calls) {
            reader.params = std::move(*reader.json);
        }
        reader.json.reset();
    }
    return parsed(reader.text, more, reader.params);
}

// `how`: format, parser and generation_prompt of terrace_chat_apply, reasoning_format, parse_tool_calls,
// continued; json: the first three for answers that are JSON, if they are either that or a call.
extern "C" terrace_answer_reader * terrace_answer_reader_new(terrace_text how) {
    const json in     = json::parse(how.string());
    auto       reader = std::make_unique<terrace_answer_reader>();
    auto &     params = reader->params;
    params.format            = (common_chat_format) in.at("format").get<int>();
    const bool continued     = flag_or(in, "continued", false);
    assign(params.generation_prompt, text_or(in, "generation_prompt", ""));
    set_reading(params, common_reasoning_format_from_name(text_or(in, "reasoning_format", "none")),
                flag_or(in, "parse_tool_calls", true), continued);
    const std::string parser = text_or(in, "parser", "");
    if (!parser.empty()) {
        load(params, parser, parser_again);
    }
    if (in.contains("json")) {
        const json & other = in.at("json");
        reader->json                    = std::make_unique<common_chat_parser_params>(params);
        reader->json->format            = (common_chat_format) other.at("format").get<int>();
        assign(reader->json->generation_prompt, text_or(other, "generation_prompt", ""));
        reader->json->parser            = common_peg_arena();
        load(*reader->json, text_or(other, "parser", ""), parser_again);
    }
    reader->message.role = "assistant";
    if (continued) {
        // What the prompt already has of the answer is no news.
        reader->message = parsed("", true, params);
    }
    return reader.release();
}

extern "C" void terrace_answer_reader_free(terrace_answer_reader * reader) {
    delete reader;
}

static json difference(const common_chat_msg_diff & diff) {
    json one = json::object();
    if (!diff.reasoning_content_delta.empty()) {
        one["reasoning"] = diff.reasoning_content_delta;
    }
    if (!diff.content_delta.empty()) {
        one["content"] = diff.content_delta;
    }
    if (diff.tool_call_index != std::string::npos) {
        json call = json::object();
        call["index"]     = diff.tool_call_index;
        call["id"]        = diff.tool_call_delta.id;
        call["name"]      = diff.tool_call_delta.name;
        call["arguments"] = diff.tool_call_delta.arguments;
        one["call"] = call;
    }
    return one;
}

// Adds text to the answer. Leaves an array of what it adds to the message.
extern "C" void terrace_answer_reader_push(terrace_answer_reader * reader, terrace_text text, bool more, terrace_sink out) {
    reader->text.append(text.data, text.len);
    common_chat_msg message = read_answer(*reader, more);
    json            all     = json::array();
    // Nothing is read of the first bytes of what may become a tag.
    if (!message.empty() || !more) {
        for (const auto & diff : common_chat_msg_diff::compute_diffs(reader->message, message)) {
            all.push_back(difference(diff));
        }
        reader->message = std::move(message);
    }
    out(all.dump());
}
