//! Displaying a plan as one line, and as a table.

use super::Plan;
use std::fmt;
use terrace_model::ByteSize;

/// Writes a line of a table, with the label in a column of its own.
fn row(f: &mut fmt::Formatter<'_>, label: &str, value: impl fmt::Display) -> fmt::Result {
    writeln!(f, "{label:<16} {value}")
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() { self.table(f) } else { self.line(f) }
    }
}

impl Plan {
    fn reads(&self) -> &'static str {
        if self.mapped > ByteSize::ZERO {
            "by the page cache"
        } else if self.direct {
            "direct reads"
        } else {
            "buffered reads"
        }
    }

    fn line(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.mapped > ByteSize::ZERO {
            return write!(f, "{}: {} in the page cache: {}", self.mode, self.mapped, self.direct_reason);
        }
        if self.managed.is_empty() {
            write!(f, "{}: {} in RAM, nothing streamed", self.mode, self.resident)?;
            return self.devices(f);
        }
        write!(
            f,
            "{}: {} in {} tensors streamed through {} of slots, {} resident (RAM budget {}); token cycle {}",
            self.mode,
            self.managed_bytes,
            self.managed_tensors,
            self.slots,
            self.resident,
            self.budget,
            self.token_cycle
        )?;
        self.devices(f)
    }

    fn devices(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.on_devices == ByteSize::ZERO { Ok(()) } else { write!(f, "; {} on devices", self.on_devices) }
    }

    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        row(f, "mode", self.mode)?;
        row(
            f,
            "streamed",
            format!("{} ({} tensors, {})", self.manage, self.managed_tensors, self.managed_bytes),
        )?;
        let how = if self.auto_budget { "chosen" } else { "given" };
        row(f, "RAM budget", format!("{} ({how}; the minimum is {})", self.budget, self.minimum))?;
        row(f, "resident", self.resident)?;
        if self.mapped > ByteSize::ZERO {
            row(f, "mapped", self.mapped)?;
        }
        if self.on_devices > ByteSize::ZERO {
            row(f, "on devices", self.on_devices)?;
        }
        if self.pinned > ByteSize::ZERO {
            row(f, "pinned", format!("{} of the resident weights", self.pinned))?;
        }
        row(f, "slots", self.slots)?;
        row(f, "token cycle", self.token_cycle)?;
        row(f, "context", format!("{} outside of the budget", self.context.total()))?;
        if self.prompt_cache > ByteSize::ZERO {
            row(f, "conversations", format!("{} outside of the budget", self.prompt_cache))?;
        }
        write!(f, "{:<16} {}: {}", "reads", self.reads(), self.direct_reason)?;
        self.warnings.iter().try_for_each(|warning| write!(f, "\nwarning: {warning}"))
    }
}
