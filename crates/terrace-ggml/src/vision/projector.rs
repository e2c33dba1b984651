//! A projector: a vision encoder, and what brings its output to the width of a model's embeddings.

use super::bitmap::{Bitmap, Raw};
use super::error::{ImageError, ProjectorError, reason};
use super::piece::{ImagePiece, Piece};
use crate::cxx::{calls, guard, guard_assertions};
use crate::llama::{Model, Token};
use crate::log;
use llama_cpp_sys_2 as sys;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use terrace_model::ByteSize;
use terrace_platform::names;

/// Options of encoding images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProjectorParams {
    pub threads: usize,
    /// Bounds of the number of embeddings of an image, where the projector reads images in their own
    /// resolution; `None`: the file's.
    pub least_tokens: Option<u32>,
    /// See [`ProjectorParams::least_tokens`].
    pub most_tokens: Option<u32>,
}

impl ProjectorParams {
    fn raw(&self) -> sys::mtmd_context_params {
        let int = |n: Option<u32>| n.map_or(-1, |n| i32::try_from(n).unwrap_or(i32::MAX));
        // SAFETY: plain data.
        let raw = unsafe { sys::mtmd_context_params_default() };
        sys::mtmd_context_params {
            // Its activations are small, and devices are planned without it.
            use_gpu: false,
            print_timings: false,
            n_threads: i32::try_from(self.threads.clamp(1, 512)).expect("clamped"),
            // Reserves memory; computes nothing.
            warmup: true,
            image_min_tokens: int(self.least_tokens),
            image_max_tokens: int(self.most_tokens),
            ..raw
        }
    }
}

unsafe extern "C-unwind" {
    /// `projector_memory.cpp`.
    fn terrace_projector_memory(path: *const std::ffi::c_char, params: sys::mtmd_context_params) -> usize;
}

/// RAM that the projector of a file will take: weights, and activations for an image of the usual
/// size. Zero if llama.cpp cannot use the file: [`Projector::load`] tells why.
pub fn projector_memory(path: &Path, params: &ProjectorParams) -> ByteSize {
    log::images_to_tracing();
    let Ok(c_path) = names::c_string(path) else { return ByteSize::ZERO };
    crate::llama::fatal::report_in_one_line();
    let counted = log::capture(|| {
        // SAFETY: the path ends with a zero and lives during the call.
        guard_assertions(|| unsafe { terrace_projector_memory(c_path.as_ptr(), params.raw()) })
    });
    ByteSize(counted.0.unwrap_or(0) as u64)
}

/// A loaded projector of a model.
#[derive(Debug)]
pub struct Projector {
    ptr: NonNull<sys::mtmd_context>,
    /// Encoding is one at a time.
    encoding: Mutex<()>,
    /// Values of an embedding.
    width: usize,
    /// It has the address of the model's vocabulary.
    _model: Arc<Model>,
}

// SAFETY: a projector has no thread affinity.
unsafe impl Send for Projector {}
// SAFETY: preparing images reads what loading has left, which mtmd.h allows from several threads; what
// encoding changes is behind the mutex.
unsafe impl Sync for Projector {}

impl Projector {
    /// Loads the projector of a model. Its weights are read into main memory, and computed on the CPU.
    ///
    /// # Errors
    /// [`ProjectorError`]: the file is none, has no vision encoder, or is for another model.
    pub fn load(path: &Path, model: &Arc<Model>, params: &ProjectorParams) -> Result<Self, ProjectorError> {
        log::images_to_tracing();
        let c_path = names::c_string(path).map_err(|_| ProjectorError::Path(path.into()))?;
        let (loaded, lines) = log::capture(|| {
            // SAFETY: a live model, which the projector keeps alive, and a path that ends with a zero.
            guard_assertions(|| unsafe {
                calls::mtmd_init_from_file(c_path.as_ptr(), model.as_ptr(), params.raw())
            })
        });
        let refused = |reason| ProjectorError::Refused { path: path.into(), reason };
        let ptr = loaded.map_err(|thrown| refused(thrown.to_string()))?;
        let ptr = NonNull::new(ptr).ok_or_else(|| refused(reason(&lines)))?;
        // SAFETY: the model is alive.
        let width = unsafe { sys::llama_model_n_embd_inp(model.as_ptr()) };
        let width = usize::try_from(width).unwrap_or(0);
        let this = Self { ptr, encoding: Mutex::new(()), width, _model: Arc::clone(model) };
        // SAFETY: the projector is alive.
        if !unsafe { sys::mtmd_support_vision(ptr.as_ptr()) } {
            return Err(refused("it has no vision encoder".into()));
        }
        Ok(this)
    }

    #[cfg(feature = "testing")]
    pub(crate) const fn as_ptr(&self) -> *mut sys::mtmd_context {
        self.ptr.as_ptr()
    }

    /// Number of values of an embedding.
    pub const fn width(&self) -> usize {
        self.width
    }

    /// Returns true if the embeddings of an image see each other in both directions, so that all of them have
    /// to be evaluated at once.
    pub fn is_two_way(&self) -> bool {
        // SAFETY: the projector is alive; without a chunk, the answer is for images.
        unsafe { sys::mtmd_decode_use_non_causal(self.ptr.as_ptr(), std::ptr::null()) }
    }

    /// Returns true if positions have several dimensions (M-RoPE).
    pub fn has_planes(&self) -> bool {
        // SAFETY: the projector is alive.
        unsafe { sys::mtmd_decode_use_mrope(self.ptr.as_ptr()) }
    }

    /// Prepares an image, and cuts it into the pieces that stand for it in a prompt. May be called from
    /// several threads.
    ///
    /// # Errors
    /// [`ImageError`]: the projector makes nothing of an image of this size.
    pub fn cut(&self, image: &Bitmap) -> Result<Vec<Piece>, ImageError> {
        let (width, height) = (image.width(), image.height());
        let (cut, lines) = log::capture(|| {
            // SAFETY: `Bitmap` has three bytes for each pixel; mtmd copies them.
            let raw = guard_assertions(|| unsafe {
                calls::mtmd_bitmap_init(width, height, image.pixels().as_ptr())
            })?;
            let raw = Raw(NonNull::new(raw).ok_or(crate::CxxError::Memory)?);
            let chunks = Chunks::new()?;
            let part = sys::mtmd_input_part { text: std::ptr::null(), bitmap: raw.0.as_ptr() };
            let parts: [*const sys::mtmd_input_part; 1] = [&raw const part];
            // SAFETY: all of it lives during the call, and one part is one part.
            let code = guard_assertions(|| unsafe {
                calls::mtmd_tokenize_from_parts(
                    self.ptr.as_ptr(),
                    chunks.0.as_ptr(),
                    parts.as_ptr(),
                    parts.len(),
                    false,
                )
            })?;
            Ok::<_, ImageError>((code == 0).then_some(chunks))
        });
        let refused = |reason| ImageError::Refused { width, height, reason };
        let chunks = cut?.ok_or_else(|| refused(reason(&lines)))?;
        let pieces = chunks.pieces()?;
        match pieces.iter().any(|piece| matches!(piece, Piece::Image(image) if image.tokens() > 0)) {
            true => Ok(pieces),
            false => Err(refused("nothing is left of it".into())),
        }
    }

    /// Computes the embeddings of an image, one after the other.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn encode(&self, image: &ImagePiece) -> Result<Vec<f32>, ImageError> {
        let _one = self.encoding.lock().unwrap_or_else(PoisonError::into_inner);
        let (code, lines) = log::capture(|| {
            // SAFETY: both are alive, and the mutex is held: nothing else encodes.
            guard(|| unsafe { calls::mtmd_encode_chunk(self.ptr.as_ptr(), image.as_ptr()) })
        });
        if code? != 0 {
            return Err(ImageError::Encode(reason(&lines)));
        }
        // SAFETY: the projector is alive.
        let values = unsafe { sys::mtmd_get_output_embd(self.ptr.as_ptr()) };
        if values.is_null() {
            return Err(ImageError::Encode("it left no embeddings".into()));
        }
        // SAFETY: as many floats as `mtmd.h` says, which live until the next call, and the mutex is held.
        Ok(unsafe { std::slice::from_raw_parts(values, self.width * image.tokens()) }.to_vec())
    }
}

impl Drop for Projector {
    fn drop(&mut self) {
        // SAFETY: owned, freed once.
        unsafe { sys::mtmd_free(self.ptr.as_ptr()) }
    }
}

/// `mtmd`'s pieces of a prompt.
struct Chunks(NonNull<sys::mtmd_input_chunks>);

impl Chunks {
    fn new() -> Result<Self, ImageError> {
        // SAFETY: allocates an empty list.
        let ptr = guard(|| unsafe { calls::mtmd_input_chunks_init() })?;
        Ok(Self(NonNull::new(ptr).ok_or(crate::CxxError::Memory)?))
    }

    fn pieces(&self) -> Result<Vec<Piece>, ImageError> {
        // SAFETY: the list is alive.
        let count = unsafe { sys::mtmd_input_chunks_size(self.0.as_ptr()) };
        (0..count).map(|index| self.piece(index)).collect()
    }

    fn piece(&self, index: usize) -> Result<Piece, ImageError> {
        // SAFETY: the index is one of the list's, whose elements live as long as it does.
        let (chunk, kind) = unsafe {
            let chunk = sys::mtmd_input_chunks_get(self.0.as_ptr(), index);
            (chunk, sys::mtmd_input_chunk_get_type(chunk))
        };
        match kind {
            sys::MTMD_INPUT_CHUNK_TYPE_TEXT => {
                let mut count = 0;
                // SAFETY: the chunk is one of text.
                let tokens = unsafe { sys::mtmd_input_chunk_get_tokens_text(chunk, &raw mut count) };
                if tokens.is_null() || count == 0 {
                    return Ok(Piece::Text(Vec::new()));
                }
                // SAFETY: that many tokens, which live with the chunk.
                let tokens = unsafe { std::slice::from_raw_parts(tokens, count) };
                Ok(Piece::Text(tokens.iter().map(|&token| Token(token)).collect()))
            }
            sys::MTMD_INPUT_CHUNK_TYPE_IMAGE => {
                // SAFETY: the chunk is alive; the copy is the caller's.
                let copy = guard(|| unsafe { calls::mtmd_input_chunk_copy(chunk) })?;
                let copy = NonNull::new(copy).ok_or(crate::CxxError::Memory)?;
                // SAFETY: a copy of an image chunk, owned here.
                Ok(Piece::Image(unsafe { ImagePiece::own(copy) }))
            }
            _ => Err(ImageError::Encode("it was taken for a sound".into())),
        }
    }
}

impl Drop for Chunks {
    fn drop(&mut self) {
        // SAFETY: owned, freed once; a destructor does not throw.
        unsafe { sys::mtmd_input_chunks_free(self.0.as_ptr()) }
    }
}
