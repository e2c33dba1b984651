// Throws on request, for the test of guard.cpp.

#include <new>
#include <stdexcept>
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
