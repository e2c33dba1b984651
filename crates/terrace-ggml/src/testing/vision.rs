//! Prompts with images, read and evaluated by llama.cpp's own helpers.

use crate::cxx::guard;
use crate::llama::Context;
use crate::vision::{Bitmap, Projector};
use llama_cpp_sys_2 as sys;
use std::ffi::c_char;

unsafe extern "C-unwind" {
    fn mtmd_tokenize(
        context: *const sys::mtmd_context,
        output: *mut sys::mtmd_input_chunks,
        text: *const sys::mtmd_input_text,
        bitmaps: *const *const sys::mtmd_bitmap,
        count: usize,
    ) -> i32;
    fn mtmd_helper_eval_chunks(
        context: *mut sys::mtmd_context,
        llama: *mut sys::llama_context,
        chunks: *const sys::mtmd_input_chunks,
        past: i32,
        sequence: i32,
        batch: i32,
        logits_last: bool,
        new_past: *mut i32,
    ) -> i32;
}

/// Evaluates a text, with an image at each `<__media__>` in it, in an empty context, in graphs of up to
/// `batch` tokens. Returns the position of the next token; [`Context::logits`] has the last one's.
///
/// # Panics
/// If llama.cpp refuses it.
pub fn evaluate(
    projector: &Projector,
    context: &mut Context,
    text: &str,
    images: &[&Bitmap],
    batch: u32,
) -> u32 {
    let raw: Vec<*const sys::mtmd_bitmap> = images
        .iter()
        // SAFETY: a bitmap has three bytes for each pixel.
        .map(|image| unsafe {
            sys::mtmd_helper_log_set(None, std::ptr::null_mut());
            #[expect(clippy::disallowed_methods, reason = "a test ends if it throws")]
            sys::mtmd_bitmap_init(image.width(), image.height(), image.pixels().as_ptr()).cast_const()
        })
        .collect();
    let text = sys::mtmd_input_text {
        text: text.as_ptr().cast::<c_char>(),
        text_len: text.len(),
        add_special: true,
        parse_special: true,
    };
    let (projector, context) = (projector.as_ptr(), context.as_ptr());
    let mut past = 0;
    let codes = guard(|| {
        // SAFETY: all of it lives during the call, and lists have the lengths that are said.
        unsafe {
            #[expect(clippy::disallowed_methods, reason = "a test ends if it throws")]
            let chunks = sys::mtmd_input_chunks_init();
            let read = mtmd_tokenize(projector, chunks, &raw const text, raw.as_ptr(), raw.len());
            let batch = i32::try_from(batch).unwrap_or(i32::MAX);
            let done = mtmd_helper_eval_chunks(projector, context, chunks, 0, 0, batch, true, &raw mut past);
            sys::mtmd_input_chunks_free(chunks);
            raw.iter().for_each(|&image| sys::mtmd_bitmap_free(image.cast_mut()));
            (read, done)
        }
    });
    assert_eq!(codes, Ok((0, 0)), "llama.cpp reads and evaluates the prompt");
    u32::try_from(past).expect("a position")
}
