//! Batches: many requests from a file, answered by the endpoints that clients use, for whoever waits for all of them.
//!
//! [`Input`] finds the lines of a file, `request` makes a request of one, `endpoints` has the server's own router
//! answer it, and [`Journal`] keeps the answers in the order in which they come, so that nothing is lost or computed
//! twice however the process ends. [`run`] does that for a whole file; for clients of a server, [`Clerk`] does it with
//! the files and batches on its [`Shelf`].

mod answer;
mod clerk;
mod endpoints;
mod error;
mod input;
mod journal;
mod lengths;
mod objects;
mod progress;
mod request;
mod run;
mod shelf;

pub use clerk::Clerk;
pub(crate) use endpoints::OfBatch;
pub use error::BatchError;
pub use input::Input;
pub use journal::{ANSWERS, JOURNAL, Journal};
pub use lengths::work_of;
pub(crate) use objects::{BatchObject, FileObject, Status};
pub use progress::Progress;
pub(crate) use request::is_endpoint;
pub use run::{RunEnd, run};
pub use shelf::Shelf;
