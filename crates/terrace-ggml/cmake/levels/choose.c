// ggml's CPU backend, of the best level of x86-64 that this processor has: each of its functions (functions.h, one FUNCTION(name)
// a line) jumps to the address that is in its slot. Compiled for any x86-64.

#include <cpuid.h>
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

enum { EAX, EBX, ECX, EDX };

static int bit(unsigned int word, int number) { return word >> number & 1; }

// Which levels the processor has, and the system saves the registers of. Asked of the processor itself: GCC's
// __builtin_cpu_supports says no in a library that is loaded into a program, where libgcc_s has been asked before.
static void examine(int has[LEVELS]) {
    unsigned int basic[4] = { 0 }, more[4] = { 0 }, vnni[4] = { 0 }, extended[4] = { 0 };
    __get_cpuid(1, &basic[EAX], &basic[EBX], &basic[ECX], &basic[EDX]);
    __get_cpuid_count(7, 0, &more[EAX], &more[EBX], &more[ECX], &more[EDX]);
    if (more[EAX] >= 1) {
        __get_cpuid_count(7, 1, &vnni[EAX], &vnni[EBX], &vnni[ECX], &vnni[EDX]);
    }
    __get_cpuid(0x80000001, &extended[EAX], &extended[EBX], &extended[ECX], &extended[EDX]);
    unsigned int saved = 0;
    if (bit(basic[ECX], 27)) {
        unsigned int high;
        __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    }
    // Registers of AVX (SSE's and the upper halves), and also those of AVX-512 (masks, upper halves, the other 16).
    const int avx = (saved & 0x6) == 0x6, avx512 = (saved & 0xe6) == 0xe6;
    // SSE3, SSSE3, CMPXCHG16B, SSE4.1, SSE4.2, POPCNT; LAHF.
    has[0] = bit(basic[ECX], 0) && bit(basic[ECX], 9) && bit(basic[ECX], 13) && bit(basic[ECX], 19) &&
             bit(basic[ECX], 20) && bit(basic[ECX], 23) && bit(extended[ECX], 0);
    // FMA, MOVBE, AVX, F16C; BMI1, AVX2, BMI2; LZCNT.
    has[1] = has[0] && avx && bit(basic[ECX], 12) && bit(basic[ECX], 22) && bit(basic[ECX], 28) && bit(basic[ECX], 29) &&
             bit(more[EBX], 3) && bit(more[EBX], 5) && bit(more[EBX], 8) && bit(extended[ECX], 5);
    has[2] = has[1] && bit(vnni[EAX], 4);
    // AVX-512 F, DQ, CD, BW, VL.
    has[3] = has[1] && avx512 && bit(more[EBX], 16) && bit(more[EBX], 17) && bit(more[EBX], 28) && bit(more[EBX], 30) &&
             bit(more[EBX], 31);
    // VBMI, VNNI.
    has[4] = has[3] && bit(more[ECX], 1) && bit(more[ECX], 11);
}

// TERRACE_VARIANT=LEVEL chooses another level than the best one, for comparisons.
__attribute__((constructor(101))) static void choose(void) {
    int has[LEVELS];
    examine(has);
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
