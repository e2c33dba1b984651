// Calls that are wrong, from one thread and from several: each is an error with a line, and nothing breaks.
#include "terrace.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef NDEBUG
#define SAYS(call, status, word)                                                                                       \
    do {                                                                                                               \
        terrace_status got = (call);                                                                                   \
        const char *line = terrace_last_error();                                                                       \
        if (got != (status) || strstr(line, (word)) == NULL || strchr(line, '\n') != NULL) {                           \
            fprintf(stderr, "%s:%d: %d: %s\n", __FILE__, __LINE__, (int) got, line);                                   \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        terrace_status got = (call);                                                                                   \
        if (got != TERRACE_OK) {                                                                                       \
            fprintf(stderr, "%s:%d: %d: %s\n", __FILE__, __LINE__, (int) got, terrace_last_error());                   \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

struct shared {
    terrace_model *model;
    terrace_session *session;
    int tokens;
};

// Uses its model, which is refused, and frees its session, which then lives to the end of the call.
static int32_t reenter(const char *bytes, size_t length, void *user) {
    struct shared *shared = user;
    (void) bytes;
    (void) length;
    if (shared->tokens++ == 0) {
        char *json = NULL;
        SAYS(terrace_model_statistics(shared->model, &json), TERRACE_BUSY, "callback");
        assert(json == NULL);
        terrace_session_free(shared->session);
    }
    return 0;
}

static int32_t interrupting(const char *bytes, size_t length, void *user) {
    struct shared *shared = user;
    (void) bytes;
    (void) length;
    if (++shared->tokens == 2) {
        OK(terrace_model_interrupt(shared->model));
    }
    return 0;
}

// Generates beside another thread, and keeps an error of its own.
static void *beside(void *user) {
    struct shared *shared = user;
    terrace_session *session = NULL;
    char *result = NULL;
    assert(strlen(terrace_last_error()) == 0);
    OK(terrace_session_new(shared->model, &session));
    SAYS(terrace_session_generate(session, "", NULL, NULL, NULL, NULL), TERRACE_PROMPT, "empty");
    OK(terrace_session_generate(session, "In the beginning", "{\"n\": 6, \"temp\": 0}", NULL, NULL, &result));
    terrace_session_free(session);
    assert(strstr(terrace_last_error(), "empty") != NULL);
    return result;
}

int main(int argc, char **argv) {
    assert(argc == 2);
    terrace_model *model = NULL;
    terrace_session *session = NULL;
    char *text = NULL;
    size_t count = 0;
    assert(terrace_abi_version() == TERRACE_ABI_VERSION && strlen(terrace_version()) >= 5);

    SAYS(terrace_model_load(NULL, NULL, &model), TERRACE_ARGUMENT, "path is null");
    SAYS(terrace_model_load("", NULL, &model), TERRACE_ARGUMENT, "path is empty");
    SAYS(terrace_model_load("\xff", NULL, &model), TERRACE_ARGUMENT, "UTF-8");
    SAYS(terrace_model_load(argv[1], NULL, NULL), TERRACE_ARGUMENT, "model is null");
    SAYS(terrace_model_load("/nonexistent.gguf", NULL, &model), TERRACE_MODEL, "/nonexistent.gguf");
    SAYS(terrace_model_load("/dev/null", NULL, &model), TERRACE_MODEL, "/dev/null");
    SAYS(terrace_model_load(argv[1], "{", &model), TERRACE_ARGUMENT, "options");
    SAYS(terrace_model_load(argv[1], "{\"n-gpu-lairs\": 1}", &model), TERRACE_ARGUMENT, "n-gpu-lairs");
    SAYS(terrace_model_load(argv[1], "{\"ctx\": -1}", &model), TERRACE_ARGUMENT, "ctx");
    SAYS(terrace_model_load(argv[1], "{\"ram-budget\": \"1KiB\", \"stream\": \"experts\"}", &model), TERRACE_UNFIT, "hint");
    SAYS(terrace_plan(argv[1], NULL, NULL), TERRACE_ARGUMENT, "json is null");
    SAYS(terrace_session_new(NULL, &session), TERRACE_ARGUMENT, "model is null");
    SAYS(terrace_session_generate(NULL, "a", NULL, NULL, NULL, NULL), TERRACE_ARGUMENT, "session is null");
    SAYS(terrace_model_interrupt(NULL), TERRACE_ARGUMENT, "model is null");
    SAYS(terrace_set_program("/nonexistent"), TERRACE_ARGUMENT, "not a file");
    assert(model == NULL && session == NULL);
    terrace_model_free(NULL);
    terrace_session_free(NULL);
    terrace_string_free(NULL);

    OK(terrace_model_load(argv[1], "{\"ctx\": 256, \"threads\": 1, \"ram-budget\": \"8MiB\", \"stream\": \"experts\"}", &model));
    int32_t tokens[4] = {0, -1, 2147483647, 0};
    SAYS(terrace_model_tokenize(model, "In the beginning of days", false, tokens, 1, &count), TERRACE_BUFFER, "room for 1");
    assert(count > 1);
    SAYS(terrace_model_tokenize(model, "a b", false, NULL, 9, &count), TERRACE_BUFFER, "room for 0");
    SAYS(terrace_model_tokenize(model, "a", false, tokens, 4, NULL), TERRACE_ARGUMENT, "count is null");
    SAYS(terrace_model_detokenize(model, tokens + 1, 1, NULL, 0, &count), TERRACE_ARGUMENT, "no token -1");
    SAYS(terrace_model_detokenize(model, tokens + 2, 1, NULL, 0, &count), TERRACE_ARGUMENT, "no token 2147483647");
    SAYS(terrace_model_detokenize(model, NULL, 1, NULL, 0, &count), TERRACE_ARGUMENT, "tokens is null");
    OK(terrace_model_detokenize(model, NULL, 0, NULL, 0, &count));
    assert(count == 0);
    SAYS(terrace_model_chat_prompt(model, "{}", &text), TERRACE_ARGUMENT, "messages");
    SAYS(terrace_model_embed(model, "", NULL, 0, &count), TERRACE_PROMPT, "empty");

    OK(terrace_session_new(model, &session));
    SAYS(terrace_session_generate(session, "a", "{\"logit-bias\": \"9999999=1\"}", NULL, NULL, NULL), TERRACE_ARGUMENT, "9999999");
    // Grammars are checked by the program, which may not be there.
    assert(terrace_session_generate(session, "a", "{\"grammar\": \"root ::=\"}", NULL, NULL, NULL) != TERRACE_OK);
    char *long_text = calloc(1, 200001);
    memset(long_text, 'a', 200000);
    SAYS(terrace_session_generate(session, long_text, NULL, NULL, NULL, NULL), TERRACE_PROMPT, "256");
    free(long_text);
    // Afterwards it goes on as if nothing had been.
    struct shared shared = {model, session, 0};
    SAYS(terrace_session_generate(session, "In the", "{\"temp\": 0}", interrupting, &shared, &text), TERRACE_CANCELLED, "interrupted");
    assert(shared.tokens == 2 && text == NULL);
    OK(terrace_model_interrupt(model));

    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        assert(pthread_create(&threads[i], NULL, beside, &shared) == 0);
    }
    char *results[3];
    for (int i = 0; i < 3; i++) {
        assert(pthread_join(threads[i], (void **) &results[i]) == 0);
        // The same tokens, whoever came first; only the times differ.
        char *end = strstr(results[i], "\"tokens\"");
        char *first = strstr(results[0], "\"tokens\"");
        assert(end != NULL && strncmp(end, first, (size_t) (strchr(end, ']') - end)) == 0);
    }
    for (int i = 0; i < 3; i++) {
        terrace_string_free(results[i]);
    }

    // The model goes first, then the session in its own callback.
    shared.tokens = 0;
    OK(terrace_session_generate(session, "And", "{\"n\": 4, \"temp\": 0}", reenter, &shared, &text));
    assert(shared.tokens == 4 && text != NULL);
    terrace_string_free(text);
    terrace_model_free(model);
    puts("done");
    return 0;
}
