//! The model's chat template, which a thread parses: one that takes long keeps chats waiting, and nothing
//! else.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use terrace_engine::ChatTemplate;

/// Time for which the server waits for a template before it is ready.
const PROMPT: Duration = Duration::from_secs(1);

/// A template, or why there is none.
type Parsed = Result<ChatTemplate, String>;

/// A template that is being parsed, or has been.
pub struct Template(Arc<OnceLock<Parsed>>);

impl Template {
    /// Begins to parse a template, and waits until that is done, or a little.
    pub fn begin(parse: impl FnOnce() -> Parsed + Send + 'static) -> Self {
        let template = Arc::new(OnceLock::new());
        let (done, wait) = channel::<()>();
        let of_thread = Arc::clone(&template);
        let work = move || {
            let parsed = catch_unwind(AssertUnwindSafe(parse));
            of_thread
                .get_or_init(|| parsed.unwrap_or_else(|_| Err("the chat template cannot be parsed".into())));
            drop(done);
        };
        if let Err(error) = std::thread::Builder::new().name("terrace-template".into()).spawn(work) {
            template.get_or_init(|| Err(format!("the chat template cannot be parsed: {error}")));
        }
        // Its end shows as a sender that is gone.
        let _ = wait.recv_timeout(PROMPT);
        Self(template)
    }

    /// The template. Waits until it is parsed.
    pub fn wait(&self) -> Result<&ChatTemplate, &str> {
        self.0.wait().as_ref().map_err(String::as_str)
    }

    /// The template, if it is parsed and can be used.
    pub fn get(&self) -> Option<&ChatTemplate> {
        self.0.get()?.as_ref().ok()
    }
}
