// Throws on request, for the test of guard.cpp.

#include <cstdint>
#include <new>
#include <stdexcept>
#include <set>
#include <string>

extern "C" [[noreturn]] void ggml_abort(const char * file, int line, const char * format, ...);

extern "C" void terrace_throw(int kind) {
    switch (kind) {
        case 1: throw std::runtime_error("of kind 1");
        case 2: throw std::bad_alloc();
        case 3: throw 3;
        case 4: throw std::runtime_error(std::string(5000, 'x'));
        case 5: ggml_abort("path/to/file.cpp", 7, "GGML_ASSERT(%s) failed", "a/b > 0");
        default: return;
    }
}

// Takes without end, for the test of bounded.cpp.
static size_t recurse(size_t depth) {
    const std::string text(100, 'x');
    return depth == SIZE_MAX ? 0 : recurse(depth + 1) + text.size();
}

// Its destructor runs while an exception is on its way.
struct allocates_when_destroyed {
    ~allocates_when_destroyed() { delete new std::string(100, 'x'); }
};

extern "C" void terrace_take(int kind, size_t count) {
    const allocates_when_destroyed held;
    std::set<std::string> kept;
    switch (kind) {
        case 1:
            while (count-- > 0) {
                delete new std::string(100, 'x');
            }
            return;
        case 2:
            while (count-- > 0) {
                kept.insert(std::string(100, 'x') + std::to_string(count));
            }
            return;
        case 3: recurse(0); return;
        case 4:
            try {
                terrace_take(1, count);
            } catch (const std::exception & error) {
                throw std::runtime_error(std::string("in another's words: ") + error.what());
            }
            return;
        default: return;
    }
}

extern "C" void * terrace_keep(size_t size) {
    return new std::string(size, 'x');
}

extern "C" void terrace_drop(void * kept) {
    delete (std::string *) kept;
}
