//! The mark of an image in a prompt.

use crate::llama::Token;
use llama_cpp_sys_2 as sys;
use std::ptr::NonNull;

/// A part of what stands for an image in a prompt.
#[derive(Debug)]
pub enum Piece {
    /// Tokens: marks around the image, or between parts of it.
    Text(Vec<Token>),
    /// An image, or a part of one.
    Image(ImagePiece),
}

/// A prepared image, or a part of one, of which embeddings can be computed.
#[derive(Debug)]
pub struct ImagePiece {
    ptr: NonNull<sys::mtmd_input_chunk>,
    tokens: usize,
    positions: u32,
}

// SAFETY: a chunk is plain data without thread affinity.
unsafe impl Send for ImagePiece {}
// SAFETY: a chunk is not changed after it was made.
unsafe impl Sync for ImagePiece {}

impl ImagePiece {
    /// Takes a chunk of type image, which is the caller's no more.
    ///
    /// # Safety
    /// The chunk is live, of type image, and nothing else frees it.
    pub(super) unsafe fn own(ptr: NonNull<sys::mtmd_input_chunk>) -> Self {
        // SAFETY: the chunk is live; getters of fields.
        let (tokens, positions) = unsafe {
            (sys::mtmd_input_chunk_get_n_tokens(ptr.as_ptr()), sys::mtmd_input_chunk_get_n_pos(ptr.as_ptr()))
        };
        Self { ptr, tokens, positions: u32::try_from(positions).unwrap_or(0) }
    }

    pub(super) const fn as_ptr(&self) -> *const sys::mtmd_input_chunk {
        self.ptr.as_ptr()
    }

    /// Number of its embeddings, each of which takes a token's room in a context.
    pub const fn tokens(&self) -> usize {
        self.tokens
    }

    /// Distance from the position of its first embedding to that of the next token: fewer than it has
    /// embeddings, where positions have several dimensions (M-RoPE).
    pub const fn positions(&self) -> u32 {
        self.positions
    }

    /// The positions of its embeddings after position `first`, each in the four dimensions of M-RoPE.
    pub fn places(&self, first: u32) -> impl Iterator<Item = [i32; 4]> + '_ {
        let first = i32::try_from(first).unwrap_or(i32::MAX);
        // SAFETY: the chunk is of type image, so it has image tokens, and lives as long as this.
        let image = unsafe { sys::mtmd_input_chunk_get_tokens_image(self.ptr.as_ptr()) };
        (0..self.tokens).map(move |index| {
            // SAFETY: the index is one of its embeddings.
            let place = unsafe { sys::mtmd_image_tokens_get_decoder_pos(image, first, index) };
            // llama.cpp's order of dimensions: time, row, column.
            [place.t, place.y, place.x, place.z].map(|at| i32::try_from(at).unwrap_or(i32::MAX))
        })
    }
}

impl Drop for ImagePiece {
    fn drop(&mut self) {
        // SAFETY: owned, freed once; a destructor does not throw.
        unsafe { sys::mtmd_input_chunk_free(self.ptr.as_ptr()) }
    }
}
