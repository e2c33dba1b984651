// What the program refers to of a C library that is newer than the one it is linked for (scripts/link-older): Debian 12's
// libstdc++ and ggml, compiled with headers of 2.36, for 2.28. Nobody else sees these definitions.

#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OWN __attribute__((visibility("hidden")))

// Since 2.32: whether the process has a single thread, in which case counters need no atomic instructions. 0 is always
// safe.
OWN char __libc_single_threaded = 0;

// Since 2.36, for std::random_device.
OWN uint32_t arc4random(void);
OWN uint32_t arc4random(void) {
    uint32_t random;
    while (getrandom(&random, sizeof random, 0) != sizeof random) {
        if (errno != EINTR) {
            abort();
        }
    }
    return random;
}

// Since 2.29.
OWN int getcpu(unsigned int *cpu, unsigned int *node) { return (int)syscall(SYS_getcpu, cpu, node, NULL); }
