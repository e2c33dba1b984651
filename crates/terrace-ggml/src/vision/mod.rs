//! Images: llama.cpp's `mtmd`, which turns them into embeddings that a text model reads among its
//! tokens.
//!
//! A [`Projector`] is loaded beside a model. [`Projector::cut`] prepares an image ([`Bitmap`]) and
//! tells what stands for it in a prompt: [`Piece`]s of tokens and of embeddings.
//! [`Projector::encode`] computes those, and [`Context::decode_embeddings`] evaluates them.
//!
//! Files of images are decoded by callers; `mtmd`'s own decoders are not reachable from here.
//!
//! [`Context::decode_embeddings`]: crate::llama::Context::decode_embeddings

mod bitmap;
mod error;
mod piece;
mod projector;

pub use bitmap::Bitmap;
pub use error::{ImageError, ProjectorError};
pub use piece::{ImagePiece, Piece};
pub use projector::{Projector, ProjectorParams, projector_memory};
