//! The exported functions.

use crate::edge::{self, OnToken, guard};
use crate::failure::{self, Failure};
use crate::model::{self, ModelHandle};
use crate::program;
use crate::session::SessionHandle;
use crate::status::{ABI_VERSION, Status};
use std::ffi::{c_char, c_void};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Version of this interface: TERRACE_ABI_VERSION of the library that runs.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_abi_version() -> u32 {
    ABI_VERSION
}

/// Version of Terrace, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn terrace_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The reason of the last call of this thread that failed, in a line; empty if none has. Valid until the next one
/// fails.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_last_error() -> *const c_char {
    failure::last()
}

/// Frees a text that a function returned. Null is nothing.
///
/// # Safety
/// Null, or such a text that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_string_free(text: *mut c_char) {
    // SAFETY: as the caller says.
    unsafe { edge::free_text(text) }
}

/// Names the program `terrace` of this version, which applies chat templates in processes of its own. Unless it is
/// named before the first one, it is looked for beside the library, in `bin` of its parent folders, and in PATH.
///
/// # Safety
/// A text or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_set_program(path: *const c_char) -> Status {
    guard(|| {
        // SAFETY: as the caller says.
        let path = unsafe { edge::path(path, "path") }?;
        if !path.is_file() {
            return Err(Failure::argument(format!("{}: not a file", path.display())));
        }
        program::set(path);
        Ok(())
    })
}

/// Plans a load, as `terrace plan --json` does, and loads nothing. `options` as for terrace_model_load; `*json` is
/// freed with terrace_string_free.
///
/// # Safety
/// Texts, of which `options` may be null; a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_plan(
    path: *const c_char,
    options: *const c_char,
    json: *mut *mut c_char,
) -> Status {
    guard(|| {
        let json = edge::place(json, "json")?;
        // SAFETY: as the caller says.
        let (path, options) =
            unsafe { (edge::path(path, "path")?, edge::optional_text(options, "options")?) };
        let plan = edge::owned_text(model::plan(path, options)?)?;
        // SAFETY: a place for the result, as the caller says.
        unsafe { json.write(plan) };
        Ok(())
    })
}

/// Loads a model: a .gguf file, or the first shard of a split one. `options` is null or a JSON object, whose keys are
/// the options of `terrace run` without dashes, and `reload`, without which files must not be written to while the
/// model is loaded: {"ram-budget": "8GiB", "ctx": 4096}. `*model` is freed with terrace_model_free.
///
/// # Safety
/// Texts, of which `options` may be null; a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_model_load(
    path: *const c_char,
    options: *const c_char,
    model: *mut *mut ModelHandle,
) -> Status {
    guard(|| {
        let model = edge::place(model, "model")?;
        // SAFETY: as the caller says.
        let (path, options) =
            unsafe { (edge::path(path, "path")?, edge::optional_text(options, "options")?) };
        let loaded = Arc::new(ModelHandle::load(path, options)?);
        // SAFETY: a place for the result, as the caller says.
        unsafe { model.write(edge::handle(loaded)) };
        Ok(())
    })
}

/// Frees a model. Its sessions can still be used, and keep it loaded until they are freed. Null is nothing.
///
/// # Safety
/// Null, or a model that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_model_free(model: *mut ModelHandle) {
    // SAFETY: as the caller says.
    unsafe { edge::free(model) }
}

/// Ends the call that computes with the model, on whatever thread, with TERRACE_CANCELLED. Does not wait, and does
/// nothing if no call computes.
///
/// # Safety
/// Null, or a model that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_model_interrupt(model: *const ModelHandle) -> Status {
    guard(|| {
        // SAFETY: as the caller says.
        unsafe { edge::object(model, "model") }?.interrupt();
        Ok(())
    })
}

/// Tokenises a text. `special` adds the tokens around a document, and recognises control tokens in the text. `*count`
/// is the number of tokens; if `capacity` is less, the status is TERRACE_BUFFER. Does not wait for other calls.
///
/// # Safety
/// A model, a text, room for `capacity` tokens, a place for the count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_model_tokenize(
    model: *const ModelHandle,
    text: *const c_char,
    special: bool,
    tokens: *mut i32,
    capacity: usize,
    count: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: as the caller says.
        let (model, text) = unsafe { (edge::object(model, "model")?, edge::text(text, "text")?) };
        let found = model.tokenize(text, special)?;
        // SAFETY: as the caller says.
        unsafe { edge::copy_out(&found, tokens, capacity, count) }
    })
}

/// The bytes of tokens, without a zero at their end. `*length` is their number; if `capacity` is less, the status is
/// TERRACE_BUFFER. Does not wait for other calls.
///
/// # Safety
/// A model, `count` tokens, room for `capacity` bytes, a place for the length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_model_detokenize(
    model: *const ModelHandle,
    tokens: *const i32,
    count: usize,
    text: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: as the caller says.
        let (model, tokens) =
            unsafe { (edge::object(model, "model")?, edge::array(tokens, count, "tokens")?) };
        let bytes = model.detokenize(tokens)?;
        // SAFETY: as the caller says; a char is a byte.
        unsafe { edge::copy_out(&bytes, text.cast(), capacity, length) }
    })
}

/// Writes a conversation as the model's chat template has it: a JSON array of messages as in OpenAI's API,
/// [{"role": "user", "content": "..."}]. `*prompt` is freed with terrace_string_free.
///
/// # Safety
/// A model, a text, a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_model_chat_prompt(
    model: *const ModelHandle,
    messages: *const c_char,
    prompt: *mut *mut c_char,
) -> Status {
    guard(|| {
        let prompt = edge::place(prompt, "prompt")?;
        // SAFETY: as the caller says.
        let (model, messages) = unsafe { (edge::object(model, "model")?, edge::text(messages, "messages")?) };
        let text = edge::owned_text(model.written(messages)?.prompt)?;
        // SAFETY: a place for the result, as the caller says.
        unsafe { prompt.write(text) };
        Ok(())
    })
}

/// Embeds a text: values of length 1, or, with the option {"pooling": "none"}, those of each token. `*count` is the
/// number of values; if `capacity` is less, the status is TERRACE_BUFFER, and the text is computed again next time.
///
/// # Safety
/// A model, a text, room for `capacity` values, a place for the count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_model_embed(
    model: *const ModelHandle,
    text: *const c_char,
    values: *mut f32,
    capacity: usize,
    count: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: as the caller says.
        let (model, text) = unsafe { (edge::object(model, "model")?, edge::text(text, "text")?) };
        edge::place(count, "count")?;
        let embedded = model.embed(text)?;
        // SAFETY: as the caller says.
        unsafe { edge::copy_out(&embedded, values, capacity, count) }
    })
}

/// Replaces the tensors that have changed in the model's files since it was loaded: all of them, or none. Calls after
/// it compute with the new ones. `*report` says which, as JSON, and is freed with terrace_string_free. Files that were
/// replaced (renamed over) are always found; those that are written to in place need the option {"reload": true}.
///
/// # Safety
/// A model and a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_model_reload_changed(
    model: *const ModelHandle,
    report: *mut *mut c_char,
) -> Status {
    guard(|| {
        let report = edge::place(report, "report")?;
        // SAFETY: as the caller says.
        let text = edge::owned_text(unsafe { edge::object(model, "model") }?.reload_changed()?)?;
        // SAFETY: a place for the result, as the caller says.
        unsafe { report.write(text) };
        Ok(())
    })
}

/// What the model was loaded with, its plan, and what it has read so far, as JSON, which is freed with
/// terrace_string_free.
///
/// # Safety
/// A model and a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_model_statistics(
    model: *const ModelHandle,
    json: *mut *mut c_char,
) -> Status {
    guard(|| {
        let json = edge::place(json, "json")?;
        // SAFETY: as the caller says.
        let text = edge::owned_text(unsafe { edge::object(model, "model") }?.statistics()?)?;
        // SAFETY: a place for the result, as the caller says.
        unsafe { json.write(text) };
        Ok(())
    })
}

/// Makes an empty session, which is freed with terrace_session_free. Sessions of a model share its context: one that
/// goes on after another was used is evaluated again.
///
/// # Safety
/// A model and a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_session_new(
    model: *const ModelHandle,
    session: *mut *mut SessionHandle,
) -> Status {
    guard(|| {
        let session = edge::place(session, "session")?;
        // SAFETY: as the caller says.
        let made = SessionHandle::new(unsafe { edge::object(model, "model") }?)?;
        // SAFETY: a place for the result, as the caller says.
        unsafe { session.write(edge::handle(Arc::new(made))) };
        Ok(())
    })
}

/// Frees a session. Null is nothing.
///
/// # Safety
/// Null, or a session that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_session_free(session: *mut SessionHandle) {
    // SAFETY: as the caller says.
    unsafe { edge::free(session) }
}

/// Generates after the session's text and `prompt`. `options` is null or a JSON object of `n` (number of tokens),
/// `stop` and the samplers of `terrace run`: {"n": 64, "temp": 0, "stop": ["\n"]}. `on_token` may be null; so may
/// `result`, which becomes {"text", "tokens", "stop", "timings", ...} and is freed with terrace_string_free. If the
/// callback ends the text, that is a result like others.
///
/// # Safety
/// A session, texts, a callback that takes `user`, a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_session_generate(
    session: *const SessionHandle,
    prompt: *const c_char,
    options: *const c_char,
    on_token: OnToken,
    user: *mut c_void,
    result: *mut *mut c_char,
) -> Status {
    guard(|| {
        // SAFETY: as the caller says.
        let (session, prompt, options) = unsafe {
            (
                edge::object(session, "session")?,
                edge::text(prompt, "prompt")?,
                edge::optional_text(options, "options")?,
            )
        };
        let json = session.generate(prompt, options, &mut |bytes| handed(bytes, on_token, user))?;
        // SAFETY: as the caller says.
        unsafe { finish(json, result) }
    })
}

/// Generates the answer to a conversation, which is written with the model's chat template. What the session holds of
/// it is not computed again; if it holds another text, that is dropped. Arguments as for terrace_model_chat_prompt and
/// terrace_session_generate.
///
/// # Safety
/// As of terrace_session_generate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_session_chat(
    session: *const SessionHandle,
    messages: *const c_char,
    options: *const c_char,
    on_token: OnToken,
    user: *mut c_void,
    result: *mut *mut c_char,
) -> Status {
    guard(|| {
        // SAFETY: as the caller says.
        let (session, messages, options) = unsafe {
            (
                edge::object(session, "session")?,
                edge::text(messages, "messages")?,
                edge::optional_text(options, "options")?,
            )
        };
        let json = session.chat(messages, options, &mut |bytes| handed(bytes, on_token, user))?;
        // SAFETY: as the caller says.
        unsafe { finish(json, result) }
    })
}

/// Hands a token's bytes to the caller.
fn handed(bytes: &[u8], on_token: OnToken, user: *mut c_void) -> ControlFlow<()> {
    match on_token.map_or(0, |on_token| on_token(bytes.as_ptr().cast(), bytes.len(), user)) {
        0 => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    }
}

/// Writes the result of a generation where the caller wants it.
///
/// # Safety
/// Null or a place.
unsafe fn finish(json: String, result: *mut *mut c_char) -> Result<(), Failure> {
    if !result.is_null() {
        let text = edge::owned_text(json)?;
        // SAFETY: as the caller says.
        unsafe { result.write(text) };
    }
    Ok(())
}
