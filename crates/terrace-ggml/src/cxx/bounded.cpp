// Bounds calls into C++ that has no bounds of its own, by what it allocates: this is the program's `operator new`. A
// bounded call that takes more than it may is left by an exception, which is a std::bad_alloc as the language asks for.
// Calls that are not bounded pay for one comparison per allocation.

#include "bounded.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <new>

#ifdef __APPLE__
#include <malloc/malloc.h>
static size_t usable(void * memory) { return malloc_size(memory); }
#elif defined(_WIN32)
#include <malloc.h>
static size_t usable(void * memory) { return _msize(memory); }
#else
#include <malloc.h>
static size_t usable(void * memory) { return malloc_usable_size(memory); }
#endif

// Steps after which a call is asked whether it is to end, and its time is looked at.
static const uint64_t LOOK = 64;

// Time of a step, at most: where llama.cpp compares each stack with all others, an allocation can take milliseconds.
static const uint64_t STEP_NS = 500;

static thread_local terrace_bounded::state now;

struct excess : std::bad_alloc {
    const char * what() const noexcept override { return "more than the call may take"; }
};

// What this thread has computed, in ns.
static uint64_t computed() {
    struct timespec time = { 0, 0 };
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t) time.tv_sec * 1000000000 + (uint64_t) time.tv_nsec;
}

// A place on the stack. Addresses of variables may be elsewhere, with a sanitizer.
static uintptr_t here() {
    return (uintptr_t) __builtin_frame_address(0);
}

terrace_bounded::terrace_bounded(const terrace_bounds * bounds) noexcept : outer(now) {
    now = { bounds, 0, LOOK, bounds == nullptr ? 0 : computed(), 0, here(), TERRACE_NOTHING };
}

terrace_bounded::~terrace_bounded() {
    now = outer;
}

terrace_excess terrace_bounded::excess() const noexcept {
    return now.excess;
}

terrace_taken terrace_bounded::taken() const noexcept {
    return { now.steps, now.bytes };
}

static terrace_excess excess_of(size_t size) {
    const terrace_bounds & bounds = *now.bounds;
    if (now.excess != TERRACE_NOTHING) {
        // Whoever has caught the exception must not go on.
        return now.excess;
    }
    now.steps += 1 + size / 1024;
    const bool look = now.steps >= now.next_look;
    if (look) {
        now.steps     = std::max(now.steps, (computed() - now.begun) / STEP_NS);
        now.next_look = now.steps + LOOK;
    }
    if (now.steps > bounds.steps) {
        return TERRACE_STEPS;
    }
    if (size > bounds.bytes || now.bytes > (int64_t) (bounds.bytes - size)) {
        return TERRACE_BYTES;
    }
    const uintptr_t place = here();
    if ((place > now.stack ? place - now.stack : now.stack - place) > bounds.stack) {
        return TERRACE_STACK;
    }
    if (look) {
        // What is asked may allocate as it likes.
        const terrace_bounded::state call = now;
        now.bounds = nullptr;
        const bool ended = bounds.ended != nullptr && bounds.ended(bounds.data);
        now = call;
        return ended ? TERRACE_ENDED : TERRACE_NOTHING;
    }
    return TERRACE_NOTHING;
}

static void * allocate(size_t size) {
    while (true) {
        if (void * memory = malloc(size == 0 ? 1 : size)) {
            return memory;
        }
        const std::new_handler handler = std::get_new_handler();
        if (handler == nullptr) {
            throw std::bad_alloc();
        }
        handler();
    }
}

static void * allocate_bounded(size_t size) {
    const terrace_excess too_much = excess_of(size);
    if (too_much != TERRACE_NOTHING) {
        now.excess = too_much;
        // An exception out of a destructor would end the process.
        if (std::uncaught_exceptions() == 0) {
            throw excess();
        }
    }
    void * memory = allocate(size);
    now.bytes += (int64_t) usable(memory);
    return memory;
}

static void release(void * memory) noexcept {
    if (__builtin_expect(now.bounds != nullptr, 0) && memory != nullptr) {
        now.bytes -= (int64_t) usable(memory);
    }
    free(memory);
}

void * operator new(size_t size) {
    return __builtin_expect(now.bounds != nullptr, 0) ? allocate_bounded(size) : allocate(size);
}

void * operator new[](size_t size) {
    return operator new(size);
}

void * operator new(size_t size, const std::nothrow_t &) noexcept {
    try {
        return operator new(size);
    } catch (...) {
        return nullptr;
    }
}

void * operator new[](size_t size, const std::nothrow_t & nothrow) noexcept {
    return operator new(size, nothrow);
}

void operator delete(void * memory) noexcept { release(memory); }
void operator delete[](void * memory) noexcept { release(memory); }
void operator delete(void * memory, size_t) noexcept { release(memory); }
void operator delete[](void * memory, size_t) noexcept { release(memory); }
void operator delete(void * memory, const std::nothrow_t &) noexcept { release(memory); }
void operator delete[](void * memory, const std::nothrow_t &) noexcept { release(memory); }
