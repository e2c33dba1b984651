//! What the targets in `fuzz/` call that is private otherwise. Exists only with `--cfg fuzzing`.

pub use crate::chat::fuzzing::{chat_template, chat_worker};
pub use crate::prompt_cache::fuzzing::kept_conversation;
