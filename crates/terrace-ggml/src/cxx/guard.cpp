// Runs a call into llama.cpp or ggml that may throw, and turns what it throws into a code and a text.

#include <cstddef>
#include <cstring>
#include <exception>
#include <new>

static void copy(char * what, size_t capacity, const char * text) {
    if (capacity > 0) {
        strncpy(what, text, capacity - 1);
        what[capacity - 1] = '\0';
    }
}

// 0: `body` returned. 1: it threw a std::exception, whose text is in `what`. 2: it threw for want of memory. 3: it threw
// something else.
extern "C" int terrace_guard(void (*body)(void *), void * data, char * what, size_t capacity) noexcept {
    try {
        body(data);
        return 0;
    } catch (const std::bad_alloc &) {
        return 2;
    } catch (const std::exception & e) {
        copy(what, capacity, e.what());
        return 1;
    } catch (...) {
        return 3;
    }
}
