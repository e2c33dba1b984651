// Generates text with the library for C, prints it as it comes, then asks a question with the chat template.
//
//   cc -std=c11 -Wall -I include examples/c/generate.c -L lib -lterrace -Wl,-rpath,'$ORIGIN/lib' -o generate
//   ./generate MODEL.gguf "In the beginning"
#include "terrace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Prints a token, and counts.
static int32_t print(const char *bytes, size_t length, void *user) {
    fwrite(bytes, 1, length, stdout);
    fflush(stdout);
    ++*(int *) user;
    return 0;
}

// Ends the text with the third token.
static int32_t three(const char *bytes, size_t length, void *user) {
    (void) bytes;
    (void) length;
    return ++*(int *) user == 3;
}

// Prints what was wrong with a call that failed, and ends the program.
static void check(terrace_status status, const char *what) {
    if (status != TERRACE_OK) {
        fprintf(stderr, "%s: error %d: %s\n", what, (int) status, terrace_last_error());
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: %s MODEL.gguf PROMPT\n", argv[0]);
        return 2;
    }
    if (terrace_abi_version() != TERRACE_ABI_VERSION) {
        fprintf(stderr, "the library is of another version: %s\n", terrace_version());
        return 1;
    }

    // Experts are read from the file as they are needed, with 8 MiB for all weights.
    const char *options = "{\"ram-budget\": \"8MiB\", \"stream\": \"experts\", \"ctx\": 512, \"threads\": 1, \"reload\": true}";
    char *json = NULL;
    check(terrace_plan(argv[1], options, &json), "plan");
    printf("plan: %zu bytes of JSON\n", strlen(json));
    terrace_string_free(json);

    terrace_model *model = NULL;
    terrace_session *session = NULL;
    check(terrace_model_load(argv[1], options, &model), "load");
    check(terrace_session_new(model, &session), "session");

    int tokens = 0;
    char *result = NULL;
    check(terrace_session_generate(session, argv[2], "{\"n\": 16, \"temp\": 0}", print, &tokens, &result), "generate");
    printf("\n%d tokens: %s\n", tokens, result);
    terrace_string_free(result);

    // A callback ends the text; the session goes on after what it has.
    tokens = 0;
    check(terrace_session_generate(session, " And", "{\"temp\": 0}", three, &tokens, NULL), "generate");
    printf("stopped after %d\n", tokens);

    int32_t ids[64];
    char text[256];
    size_t count = 0, length = 0;
    check(terrace_model_tokenize(model, argv[2], false, ids, 64, &count), "tokenize");
    check(terrace_model_detokenize(model, ids, count, text, sizeof text, &length), "detokenize");
    printf("%zu tokens are %.*s\n", count, (int) length, text);

    float *values = malloc(4096 * sizeof *values);
    check(terrace_model_embed(model, argv[2], values, 4096, &count), "embed");
    printf("embedding of %zu values\n", count);
    free(values);

    // Needs the program `terrace`, and a model with a chat template.
    tokens = 0;
    terrace_status status = terrace_session_chat(
        session, "[{\"role\": \"user\", \"content\": \"Who made the light?\"}]", "{\"n\": 8, \"temp\": 0}", print, &tokens, NULL);
    if (status == TERRACE_OK) {
        printf("\nanswer of %d tokens\n", tokens);
    } else {
        printf("no answer: %s\n", terrace_last_error());
    }

    char *report = NULL;
    check(terrace_model_reload_changed(model, &report), "reload");
    printf("reload: %s\n", report);
    terrace_string_free(report);
    check(terrace_model_statistics(model, &json), "statistics");
    printf("statistics: %zu bytes of JSON\n", strlen(json));
    terrace_string_free(json);

    // In any order: a session keeps its model.
    terrace_model_free(model);
    terrace_session_free(session);
    return 0;
}
