//! The steps of a generation, for those that drive several at once, such as `terrace-serving`.
//! [`Engine::generate`](crate::Engine::generate) takes the same steps for one session.

pub use crate::drafts::cannot_check;
pub use crate::embedding::Embedding;
pub use crate::experts::{Mark, Window};
pub use crate::generate::Evaluated;
pub use crate::generation::{Abandoned, Generation, GenerationParams, Stop};
pub use crate::options::{MOST_DRAFTS, MOST_DRAFTS_WITH_EXPERTS};
pub use crate::tokenize::{tokenize, tokenize_prompt};
pub use crate::vision::{Reading, Vision};
