//! Chat templates, and the readers of answers.

use super::text::{Sink, Text};
use super::{call, owned};
use crate::cxx::CxxError;
use llama_cpp_sys_2 as sys;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

unsafe extern "C-unwind" {
    fn terrace_chat_templates(source: Text<'_>, bos: Text<'_>, eos: Text<'_>) -> *mut c_void;
    fn terrace_chat_templates_free(templates: *mut c_void);
    fn terrace_chat_caps(templates: *const c_void, out: Sink<'_>);
    fn terrace_chat_apply(templates: *const c_void, request: Text<'_>, out: Sink<'_>);
    fn terrace_answer_reader_new(how: Text<'_>) -> *mut c_void;
    fn terrace_answer_reader_free(reader: *mut c_void);
    fn terrace_answer_reader_push(reader: *mut c_void, text: Text<'_>, more: bool, out: Sink<'_>);
}

/// The names of the templates that llama.cpp writes itself. [`Templates::parse`] takes them as sources.
pub fn template_names() -> Vec<String> {
    // SAFETY: with no room it only counts.
    let count = unsafe { sys::llama_chat_builtin_templates(std::ptr::null_mut(), 0) };
    let mut names = vec![std::ptr::null(); usize::try_from(count).unwrap_or(0)];
    // SAFETY: there is room for as many pointers as are said, to static strings.
    unsafe { sys::llama_chat_builtin_templates(names.as_mut_ptr(), names.len()) };
    // SAFETY: filled above.
    let text = |&name: &*const c_char| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    names.iter().filter(|name| !name.is_null()).map(text).collect()
}

/// A model's chat template.
#[derive(Debug)]
pub struct Templates(NonNull<c_void>);

// SAFETY: a parsed template has no thread affinity, and applying it changes nothing in it.
unsafe impl Send for Templates {}

impl Templates {
    /// Parses a template's Jinja source, or takes one of [`template_names`]; `bos` and `eos` are the texts of the tokens that it writes.
    ///
    /// # Errors
    /// What `common` says of the source.
    pub fn parse(source: &str, bos: &str, eos: &str) -> Result<Self, CxxError> {
        let (source, bos, eos) = (Text::of(source), Text::of(bos), Text::of(eos));
        // SAFETY: the texts live during the call.
        let templates = call(|| unsafe { terrace_chat_templates(source, bos, eos) })?;
        NonNull::new(templates).map(Self).ok_or(CxxError::Other)
    }

    /// Capabilities of the template, as a JSON object of booleans.
    ///
    /// # Errors
    /// [`CxxError`].
    pub fn caps(&self) -> Result<String, CxxError> {
        let mut text = Vec::new();
        let out = Sink::of(&mut text);
        // SAFETY: the template is alive, and so is the vector.
        call(|| unsafe { terrace_chat_caps(self.0.as_ptr(), out) })?;
        Ok(owned(text))
    }

    /// Renders a conversation: JSON to JSON, as `terrace_chat_apply` in `chat.cpp` says.
    ///
    /// # Errors
    /// What `common`, or the template itself, says of the conversation.
    pub fn apply(&self, request: &str) -> Result<String, CxxError> {
        let mut text = Vec::new();
        let (request, out) = (Text::of(request), Sink::of(&mut text));
        // SAFETY: the template is alive, and so are the texts.
        call(|| unsafe { terrace_chat_apply(self.0.as_ptr(), request, out) })?;
        Ok(owned(text))
    }
}

impl Drop for Templates {
    fn drop(&mut self) {
        // SAFETY: owned, freed once; a destructor does not throw.
        unsafe { terrace_chat_templates_free(self.0.as_ptr()) }
    }
}

/// Reads an answer while it grows: what of it is content, thought, or a call of a tool.
#[derive(Debug)]
pub struct AnswerReader(NonNull<c_void>);

// SAFETY: no thread affinity; `&mut self` makes its use exclusive.
unsafe impl Send for AnswerReader {}

impl AnswerReader {
    /// Makes a reader of answers to a conversation that was rendered: `how` is JSON, as
    /// `terrace_answer_reader_new` in `chat.cpp` says.
    ///
    /// # Errors
    /// [`CxxError`].
    pub fn new(how: &str) -> Result<Self, CxxError> {
        let how = Text::of(how);
        // SAFETY: the text lives during the call.
        let reader = call(|| unsafe { terrace_answer_reader_new(how) })?;
        NonNull::new(reader).map(Self).ok_or(CxxError::Other)
    }

    /// Adds text, after which there is `more`. Returns what it adds, as a JSON array of objects with
    /// `reasoning`, `content` or `call`.
    ///
    /// # Errors
    /// The whole answer is not of the form that the template has for answers.
    pub fn push(&mut self, text: &str, more: bool) -> Result<String, CxxError> {
        let mut added = Vec::new();
        let (text, out) = (Text::of(text), Sink::of(&mut added));
        // SAFETY: the reader is alive, and so are the texts.
        call(|| unsafe { terrace_answer_reader_push(self.0.as_ptr(), text, more, out) })?;
        Ok(owned(added))
    }
}

impl Drop for AnswerReader {
    fn drop(&mut self) {
        // SAFETY: owned, freed once; a destructor does not throw.
        unsafe { terrace_answer_reader_free(self.0.as_ptr()) }
    }
}
