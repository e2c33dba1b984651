// Bounds of calls into C++.

#pragma once

#include <cstddef>
#include <cstdint>

// What a call may take. `Bounds` of bounds.rs.
struct terrace_bounds {
    uint64_t steps; // allocations and KiB allocated, or half microseconds of computing, whichever is more
    uint64_t bytes; // allocated and not freed
    uint64_t stack; // bytes of stack below the call's own, where it allocates
    bool (*ended)(const void * data); // whether the call is to end; asked now and then
    const void * data;
};

// What a call has taken. `Taken` of bounds.rs.
struct terrace_taken {
    uint64_t steps;
    int64_t  bytes; // allocated and not freed, less what was freed of earlier calls'
};

enum terrace_excess { TERRACE_NOTHING, TERRACE_STEPS, TERRACE_BYTES, TERRACE_STACK, TERRACE_ENDED };

// A bounded call on this thread, from its construction to its end. Calls may be nested; the inner one's bounds hold alone.
class terrace_bounded {
public:
    explicit terrace_bounded(const terrace_bounds * bounds) noexcept;
    ~terrace_bounded();

    terrace_bounded(const terrace_bounded &) = delete;
    terrace_bounded & operator=(const terrace_bounded &) = delete;

    terrace_excess excess() const noexcept;
    terrace_taken  taken() const noexcept;

    struct state {
        const terrace_bounds * bounds; // nullptr: the call is not bounded
        uint64_t               steps;
        uint64_t               next_look;
        uint64_t               begun; // what the thread had computed, in ns
        int64_t                bytes;
        uintptr_t              stack;
        terrace_excess         excess;
    };

private:
    state outer;
};
