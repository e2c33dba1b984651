//! Options that contradict each other in their values.

use crate::error::CliError;
use terrace_engine::options::{LearnOptions, MemoryOptions, Mmap};
use terrace_model::learn::Reported;
use terrace_plan::Manage;

/// Checks that weights are not to be both mapped and streamed.
///
/// # Errors
/// They are.
pub fn of_memory(memory: &MemoryOptions) -> Result<(), CliError> {
    let message = match (memory.mmap, memory.stream) {
        (Mmap::On, stream @ (Manage::Experts | Manage::Ffn | Manage::All)) => {
            format!("--mmap leaves all weights to the page cache, but --stream {stream} streams some of them")
        }
        (Mmap::Off, Manage::Mapped) => "--mmap=off and --stream mapped contradict each other".into(),
        _ => return Ok(()),
    };
    Err(CliError::Usage { message, hint: "use only one of the two".into() })
}

/// Checks that a learn file is not to be both written and not.
///
/// # Errors
/// It is.
pub fn of_learning(learn: &LearnOptions) -> Result<(), CliError> {
    let LearnOptions { learn_to, learn_mode, auto_learn, .. } = learn;
    if *learn_mode != Reported::Off || (learn_to.is_none() && !auto_learn) {
        return Ok(());
    }
    let asks = if *auto_learn { "--auto-learn" } else { "--learn-to" };
    Err(CliError::Usage {
        message: format!("--learn-mode off writes no file, but {asks} asks for one"),
        hint: "use only one of the two".into(),
    })
}
