//! Private functions that the targets in `fuzz/` call. Exists only with `--cfg fuzzing`.

pub use crate::chat::fuzzing::{chat_template, chat_worker};
pub use crate::prompt_cache::fuzzing::kept_conversation;
