// A backend of ggml in a library, for tests, compiled with the numbers of the ggml that it claims to be of (library.rs).
// With BASE it is the libggml-base that the backend depends on.

#define _GNU_SOURCE
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef BASE

// ggml's constructor installs a handler of uncaught exceptions, and aborts if it finds its own: if the library was
// unloaded, and loaded to the same address again.
__attribute__((constructor)) static void install(void) {
    static char handler;
    char own[32];
    snprintf(own, sizeof own, "%p", (void *) &handler);
    const char * installed = getenv("IMITATION_HANDLER");
    if (installed && strcmp(installed, own) == 0) { abort(); }
    setenv("IMITATION_HANDLER", own, 1);
}

const char * ggml_version(void) { return VERSION; }
const char * ggml_commit(void) { return "c0ffee"; }
size_t ggml_tensor_overhead(void) { return TENSOR; }
size_t ggml_graph_overhead(void) { return GRAPH; }
const char * ggml_op_name(int op) {
    static const char * const names[] = { OPS };
    return names[op];
}

#else

typedef struct reg {
    int api_version;
    const char * (*get_name)(struct reg *);
    size_t (*get_device_count)(struct reg *);
    void * (*get_device)(struct reg *, size_t);
    void * (*get_proc_address)(struct reg *, const char *);
    void * context;
} reg;

// Nothing may call a function of a library that is refused.
static const char * get_name(reg * r) {
    (void) r;
    if (REFUSED) { abort(); }
    return "Imitation";
}
static size_t get_device_count(reg * r) { (void) r; return 0; }
static void * get_device(reg * r, size_t i) { (void) r; (void) i; abort(); }

#ifdef VERSION
const char * ggml_version(void);
const char * depends_on_base(void) { return ggml_version(); }
#endif
#ifdef MISSING
void missing(void);
void depends_on_missing(void) { missing(); }
#endif

#ifndef NO_ENTRY
reg * ggml_backend_init(void) {
    static reg one = { API, get_name, get_device_count, get_device, NULL, NULL };
    // A backend of another ggml is not even started.
    if (REFUSED && API == OWN_API) { abort(); }
    return NO_DRIVER ? NULL : &one;
}
#endif

#endif
