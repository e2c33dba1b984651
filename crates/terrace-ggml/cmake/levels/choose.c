// ggml's CPU backend, of the best level of x86-64 that this processor has: each of its functions (functions.h, one FUNCTION(name)
// a line) jumps to the address that is in its slot. Compiled for any x86-64.

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEVELS = 5 };

// Of the lowest one until a level is chosen, which is before any other code of the program that may call it.
#define FUNCTION(name)                                                                                    \
    extern char x86_64_v2_##name[], x86_64_v3_##name[], x86_64_v3_vnni_##name[], x86_64_v4_##name[],       \
        x86_64_v4_vnni_##name[];                                                                           \
    __attribute__((visibility("hidden"))) const void *terrace_slot_##name = x86_64_v2_##name;              \
    __asm__(".section .text." #name ",\"ax\",@progbits\n"                                                  \
            ".globl " #name "\n"                                                                           \
            ".type " #name ",@function\n" #name ":\n"                                                      \
            "jmp *terrace_slot_" #name "(%rip)\n"                                                          \
            ".size " #name ", .-" #name "\n"                                                               \
            ".text\n");
#include "functions.h"
#undef FUNCTION

struct function {
    const void **slot;
    const void *addresses[LEVELS];
};

static const struct function functions[] = {
#define FUNCTION(name)                                                                                    \
    { &terrace_slot_##name, { x86_64_v2_##name, x86_64_v3_##name, x86_64_v3_vnni_##name, x86_64_v4_##name, \
                              x86_64_v4_vnni_##name } },
#include "functions.h"
#undef FUNCTION
};

static const char *const names[LEVELS] = { "x86-64-v2", "x86-64-v3", "x86-64-v3-vnni", "x86-64-v4",
                                           "x86-64-v4-vnni" };

static const char *chosen;

// The level that computes; terrace-ggml asks.
const char *terrace_cpu_level(void);
const char *terrace_cpu_level(void) { return chosen; }

static void say(const char *text) {
    // Nobody may be there to read it.
    if (write(STDERR_FILENO, text, strlen(text)) < 0) {
        return;
    }
}

static void refuse(const char *before, const char *name, const char *after) {
    say("error: ");
    say(before);
    say(name);
    say(after);
    _exit(1);
}

// TERRACE_VARIANT=LEVEL chooses another level than the best one, for comparisons.
__attribute__((constructor(101))) static void choose(void) {
    __builtin_cpu_init();
    const int v3 = __builtin_cpu_supports("x86-64-v3"), v4 = __builtin_cpu_supports("x86-64-v4");
    const int has[LEVELS] = {
        __builtin_cpu_supports("x86-64-v2"),
        v3,
        v3 && __builtin_cpu_supports("avxvnni"),
        v4,
        v4 && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni"),
    };
    if (!has[0]) {
        refuse("this processor is older than x86-64-v2 (SSE4.2, since about 2009), which Terrace needs", "", "\n");
    }
    const char *wanted = getenv("TERRACE_VARIANT");
    int level = LEVELS - 1;
    if (wanted != NULL && wanted[0] != '\0') {
        while (level >= 0 && strcmp(names[level], wanted) != 0) {
            level--;
        }
        if (level < 0) {
            refuse("TERRACE_VARIANT: there is no ", wanted,
                   ", only x86-64-v2, x86-64-v3, x86-64-v3-vnni, x86-64-v4 and x86-64-v4-vnni\n");
        }
        if (!has[level]) {
            refuse("TERRACE_VARIANT: this processor does not have all of ", wanted, "\n");
        }
    } else {
        while (!has[level]) {
            level--;
        }
    }
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        *functions[i].slot = functions[i].addresses[level];
    }
    chosen = names[level];
}
