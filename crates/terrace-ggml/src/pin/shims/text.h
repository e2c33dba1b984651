// Texts between Rust and C++.

#pragma once

#include <cstddef>
#include <string>

// Bytes that the caller keeps for the duration of a call.
struct terrace_text {
    const char * data;
    size_t       len;

    std::string string() const { return std::string(data, len); }
};

// Where a call leaves a text: `put` copies it.
struct terrace_sink {
    void * to;
    void (*put)(void * to, const char * data, size_t len);

    void operator()(const std::string & text) const { put(to, text.data(), text.size()); }
};
