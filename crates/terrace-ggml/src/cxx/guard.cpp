// Runs a call into llama.cpp or ggml that may throw, and turns what it throws into a code and a text. Failed assertions,
// after which ggml would end the process, are thrown as well where the caller says that this is safe.

#include "bounded.h"

#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>

struct failed_assertion : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Whether a failed assertion on this thread may be thrown.
static thread_local bool may_throw = false;

// Reports a failed assertion and ends the process, unless it may be thrown; then it returns.
static void (*report)(const char * message, bool may_throw) = nullptr;

// Says whether a failed assertion on this thread may be thrown from now on. Returns what held before.
extern "C" bool terrace_may_throw(bool value) noexcept {
    const bool before = may_throw;
    may_throw = value;
    return before;
}

// `path/file.cpp:123: what` without the path, which is one of the machine that compiled it.
static const char * without_path(const char * message) {
    const char * start = message;
    for (const char * at = message; *at != '\0' && *at != ':'; ++at) {
        if (*at == '/') {
            start = at + 1;
        }
    }
    return start;
}

extern "C" void terrace_on_assertion(const char * message) {
    message = without_path(message);
    report(message, may_throw);
    throw failed_assertion(message);
}

// Once, before ggml is told of `terrace_on_assertion`.
extern "C" void terrace_report_assertions(void (*f)(const char * message, bool may_throw)) {
    report = f;
}

static void copy(char * what, size_t capacity, const char * text) {
    if (capacity > 0) {
        strncpy(what, text, capacity - 1);
        what[capacity - 1] = '\0';
    }
}

static int run(void (*body)(void *), void * data, char * what, size_t capacity) noexcept {
    try {
        body(data);
        return 0;
    } catch (const std::bad_alloc &) {
        return 2;
    } catch (const failed_assertion & e) {
        copy(what, capacity, e.what());
        return 4;
    } catch (const std::exception & e) {
        copy(what, capacity, e.what());
        return 1;
    } catch (...) {
        return 3;
    }
}

// 0: `body` returned. 1: it threw a std::exception, whose text is in `what`. 2: it threw for want of memory. 3: it threw
// something else. 4: an assertion failed, and `assertions` is set; its text is in `what`. Above that: it has taken more
// than `bounds`, by a `terrace_excess`. `taken` gets what it has taken, if it is bounded.
extern "C" int terrace_guard(void (*body)(void *), void * data, bool assertions, const terrace_bounds * bounds,
                             terrace_taken * taken, char * what, size_t capacity) noexcept {
    const bool outer = may_throw;
    may_throw = assertions;
    int code;
    if (bounds == nullptr) {
        // What is called on behalf of a bounded call is bounded with it.
        code = run(body, data, what, capacity);
    } else {
        const terrace_bounded call(bounds);
        code = run(body, data, what, capacity);
        *taken = call.taken();
        if (code != 0 && call.excess() != TERRACE_NOTHING) {
            code = 4 + call.excess();
        }
    }
    may_throw = outer;
    return code;
}
