// Throws on request, for the test of guard.cpp.

#include <new>
#include <stdexcept>
#include <string>

extern "C" void terrace_throw(int kind) {
    switch (kind) {
        case 1: throw std::runtime_error("of kind 1");
        case 2: throw std::bad_alloc();
        case 3: throw 3;
        case 4: throw std::runtime_error(std::string(5000, 'x'));
        default: return;
    }
}
