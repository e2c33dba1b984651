// Terrace as a library: runs GGUF models that are larger than memory.
//
// Generated from crates/terrace-c/src by `cargo xtask docs`; docs/reference/c.md has the rules in one place.
//
// Texts are UTF-8 and end with a zero. Every function that can fail returns a status; terrace_last_error() then says
// in a line what was wrong. A pointer that must not be null and is, is TERRACE_ARGUMENT. Results are written only on
// TERRACE_OK, except the counts of TERRACE_BUFFER.
//
// Handles may be used from any thread. Calls on one model, and on its sessions, wait for each other;
// terrace_model_interrupt() does not. A callback must not use its own model (TERRACE_BUSY), except to interrupt it,
// and must neither throw nor jump out. A handle must not be freed twice, nor used after it was freed.

#ifndef TERRACE_H
#define TERRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Version of this interface. It changes where programs that were built for an earlier one would not work.
#define TERRACE_ABI_VERSION 0

// The result of a call.
typedef enum {
    // Done.
    TERRACE_OK = 0,
    // An argument is null, not UTF-8, not JSON, or names no option or value.
    TERRACE_ARGUMENT = 1,
    // The model, or a file beside it, cannot be read or used.
    TERRACE_MODEL = 2,
    // This machine, or its memory, cannot do what was asked.
    TERRACE_UNFIT = 3,
    // The prompt is empty, or does not fit the context.
    TERRACE_PROMPT = 4,
    // The chat template is missing, refuses the conversation, or cannot be applied.
    TERRACE_TEMPLATE = 5,
    // The computation, or a read for it, failed. The session is as it was before.
    TERRACE_COMPUTE = 6,
    // Tensors could not be replaced. The model is unchanged.
    TERRACE_RELOAD = 7,
    // terrace_model_interrupt ended the call.
    TERRACE_CANCELLED = 8,
    // The buffer is too small. The count says how much there is.
    TERRACE_BUFFER = 9,
    // A callback used its own model.
    TERRACE_BUSY = 10,
    // A defect of Terrace, now or in an earlier call on this model, which can only be freed.
    TERRACE_PANIC = 11,
} terrace_status;

// A loaded model.
typedef struct terrace_model terrace_model;

// A text of a model's: prompts and what was generated after them.
typedef struct terrace_session terrace_session;

// Called with each token's bytes, which are not terminated and may end within a character; ends the text by
// returning something other than 0.
typedef int32_t (*terrace_on_token)(const char *bytes, size_t length, void *user);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Version of this interface: TERRACE_ABI_VERSION of the library that runs.
uint32_t terrace_abi_version(void);

// Version of Terrace, such as "0.1.0".
const char *terrace_version(void);

// The reason of the last call of this thread that failed, in a line; empty if none has. Valid until the next one
// fails.
const char *terrace_last_error(void);

// Frees a text that a function returned. Null is nothing.
void terrace_string_free(char *text);

// Names the program `terrace` of this version, which applies chat templates in processes of its own. Unless it is
// named before the first one, it is looked for beside the library, in `bin` of its parent folders, and in PATH.
terrace_status terrace_set_program(const char *path);

// Plans a load, as `terrace plan --json` does, and loads nothing. `options` as for terrace_model_load; `*json` is
// freed with terrace_string_free.
terrace_status terrace_plan(const char *path,
                            const char *options,
                            char **json);

// Loads a model: a .gguf file, or the first shard of a split one. `options` is null or a JSON object, whose keys are
// the options of `terrace run` without dashes, and `reload`, without which files must not be written to while the
// model is loaded: {"ram-budget": "8GiB", "ctx": 4096}. `*model` is freed with terrace_model_free.
terrace_status terrace_model_load(const char *path,
                                  const char *options,
                                  terrace_model **model);

// Frees a model. Its sessions can still be used, and keep it loaded until they are freed. Null is nothing.
void terrace_model_free(terrace_model *model);

// Ends the call that computes with the model, on whatever thread, with TERRACE_CANCELLED. Does not wait, and does
// nothing if no call computes.
terrace_status terrace_model_interrupt(const terrace_model *model);

// Tokenises a text. `special` adds the tokens around a document, and recognises control tokens in the text. `*count`
// is the number of tokens; if `capacity` is less, the status is TERRACE_BUFFER. Does not wait for other calls.
terrace_status terrace_model_tokenize(const terrace_model *model,
                                      const char *text,
                                      bool special,
                                      int32_t *tokens,
                                      size_t capacity,
                                      size_t *count);

// The bytes of tokens, without a zero at their end. `*length` is their number; if `capacity` is less, the status is
// TERRACE_BUFFER. Does not wait for other calls.
terrace_status terrace_model_detokenize(const terrace_model *model,
                                        const int32_t *tokens,
                                        size_t count,
                                        char *text,
                                        size_t capacity,
                                        size_t *length);

// Writes a conversation as the model's chat template has it: a JSON array of messages as in OpenAI's API,
// [{"role": "user", "content": "..."}]. `*prompt` is freed with terrace_string_free.
terrace_status terrace_model_chat_prompt(const terrace_model *model, const char *messages, char **prompt);

// Embeds a text: values of length 1, or, with the option {"pooling": "none"}, those of each token. `*count` is the
// number of values; if `capacity` is less, the status is TERRACE_BUFFER, and the text is computed again next time.
terrace_status terrace_model_embed(const terrace_model *model,
                                   const char *text,
                                   float *values,
                                   size_t capacity,
                                   size_t *count);

// Replaces the tensors that have changed in the model's files since it was loaded: all of them, or none. Calls after
// it compute with the new ones. `*report` says which, as JSON, and is freed with terrace_string_free. Files that were
// replaced (renamed over) are always found; those that are written to in place need the option {"reload": true}.
terrace_status terrace_model_reload_changed(const terrace_model *model,
                                            char **report);

// What the model was loaded with, its plan, and what it has read so far, as JSON, which is freed with
// terrace_string_free.
terrace_status terrace_model_statistics(const terrace_model *model, char **json);

// Makes an empty session, which is freed with terrace_session_free. Sessions of a model share its context: one that
// goes on after another was used is evaluated again.
terrace_status terrace_session_new(const terrace_model *model,
                                   terrace_session **session);

// Frees a session. Null is nothing.
void terrace_session_free(terrace_session *session);

// Generates after the session's text and `prompt`. `options` is null or a JSON object of `n` (number of tokens),
// `stop` and the samplers of `terrace run`: {"n": 64, "temp": 0, "stop": ["\n"]}. `on_token` may be null; so may
// `result`, which becomes {"text", "tokens", "stop", "timings", ...} and is freed with terrace_string_free. If the
// callback ends the text, that is a result like others.
terrace_status terrace_session_generate(const terrace_session *session,
                                        const char *prompt,
                                        const char *options,
                                        terrace_on_token on_token,
                                        void *user,
                                        char **result);

// Generates the answer to a conversation, which is written with the model's chat template. What the session holds of
// it is not computed again; if it holds another text, that is dropped. Arguments as for terrace_model_chat_prompt and
// terrace_session_generate.
terrace_status terrace_session_chat(const terrace_session *session,
                                    const char *messages,
                                    const char *options,
                                    terrace_on_token on_token,
                                    void *user,
                                    char **result);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TERRACE_H */
