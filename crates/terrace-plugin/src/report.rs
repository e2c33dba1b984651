//! Messages to the program's user: one line each, beside the program's own.

use std::fmt::{Debug, Display, Write as _};
use std::io::{Write as _, stderr};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Tells it, if there is anywhere to tell it.
pub fn say(what: impl Display) {
    let _ = writeln!(stderr(), "terrace: {what}");
}

/// Tells the warnings of Terrace's other crates from now on.
pub fn tell_warnings() {
    // Only the first call has an effect.
    let _ = tracing::subscriber::set_global_default(Warnings);
}

/// Prints warnings and errors, each as a line, and nothing else.
struct Warnings;

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = EventText::default();
        event.record(&mut line);
        say(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        // Spans are not enabled, so this is not called.
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// An event's message, with its fields after it.
#[derive(Default)]
struct EventText(String);

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = match field.name() {
            "message" => {
                let fields = std::mem::take(&mut self.0);
                write!(self.0, "{value:?}{fields}")
            }
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
