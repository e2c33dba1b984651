//! Memory: its size, its limits, and whether the kernel reports pressure.

use super::{Checks, Finding};
use std::path::Path;
use terrace_model::ByteSize;
use terrace_platform::input_file::{self, MAX_SETTINGS};
use terrace_platform::memory::IS_TOLD_IN_FILES;

/// Enough for a tiny model, its context and the program.
const LEAST: ByteSize = ByteSize::mib(128);
/// Share of available memory below which little is left for weights.
const LITTLE: f64 = 0.25;

pub struct Memory {
    total: ByteSize,
    available: ByteSize,
    limit: Option<ByteSize>,
    /// `None` where the system does not tell.
    kernel: Option<Kernel>,
}

/// Facts about memory that a kernel tells besides its amount.
struct Kernel {
    swap_total: ByteSize,
    swap_free: ByteSize,
    huge_pages: Option<String>,
    pressure: bool,
}

impl Kernel {
    fn gather() -> Self {
        let meminfo =
            input_file::read_regular_text(Path::new("/proc/meminfo"), MAX_SETTINGS).unwrap_or_default();
        let huge = input_file::read_regular_text(
            Path::new("/sys/kernel/mm/transparent_hugepage/enabled"),
            MAX_SETTINGS,
        )
        .ok();
        Self {
            swap_total: field(&meminfo, "SwapTotal:"),
            swap_free: field(&meminfo, "SwapFree:"),
            huge_pages: huge.as_deref().and_then(chosen),
            // The file may exist without being readable.
            pressure: input_file::read_regular_text(Path::new("/proc/pressure/memory"), MAX_SETTINGS).is_ok(),
        }
    }
}

impl Checks for Memory {
    fn gather(_: &Path) -> Self {
        Self {
            total: terrace_host::total_memory(),
            available: terrace_host::available_memory(),
            limit: terrace_host::cgroup_memory_limit(),
            kernel: IS_TOLD_IN_FILES.then(Kernel::gather),
        }
    }

    fn judge(&self) -> Vec<Finding> {
        let Self { total, available, .. } = *self;
        let text = format!("{available} available of {total}");
        let free = if available < LEAST {
            Finding::bad("memory", text, format!("end other programs; a run needs at least {LEAST}"))
        } else if (available.bytes() as f64) < total.bytes() as f64 * LITTLE {
            Finding::warn("memory", text, "other programs use most of it; ending some makes room for weights")
        } else {
            Finding::ok("memory", text)
        };
        let limit = match self.limit {
            Some(limit) if limit < total => Finding::warn(
                "cgroup",
                format!("a control group limits this process to {limit} of {total}"),
                "budgets stay within the limit; raise memory.max (for a container: --memory) to use more",
            ),
            _ => Finding::ok("cgroup", "no memory limit below the machine's"),
        };
        let mut findings = vec![free, limit];
        findings.extend(self.kernel.iter().flat_map(Kernel::judge));
        findings
    }
}

impl Kernel {
    fn judge(&self) -> [Finding; 3] {
        let used = self.swap_total.saturating_sub(self.swap_free);
        let swap = if self.swap_total == ByteSize::ZERO {
            Finding::ok("swap", "none: weights are never swapped out")
        } else if used.bytes() * 2 > self.swap_total.bytes() {
            let text = format!("{used} of {} in use", self.swap_total);
            Finding::warn(
                "swap",
                text,
                "memory is short; weights that are swapped out are slower than streamed ones",
            )
        } else {
            Finding::ok("swap", format!("{used} of {} in use", self.swap_total))
        };
        let huge = match self.huge_pages.as_deref() {
            Some(mode @ ("always" | "madvise")) => {
                Finding::ok("huge pages", format!("transparent huge pages: {mode}"))
            }
            Some(mode) => Finding::warn(
                "huge pages",
                format!("transparent huge pages: {mode}"),
                "as root, echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
            ),
            None => Finding::warn(
                "huge pages",
                "the kernel has no transparent huge pages",
                "slots use small pages; nothing to do",
            ),
        };
        let pressure = if self.pressure {
            Finding::ok("pressure", "the kernel reports memory pressure (PSI)")
        } else {
            let advice = "boot with psi=1 (CONFIG_PSI), so that budgets can shrink in time";
            Finding::warn("pressure", "the kernel does not report memory pressure", advice)
        };
        [swap, huge, pressure]
    }
}

/// `Key:   123 kB`.
fn field(text: &str, key: &str) -> ByteSize {
    let number =
        text.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next()?.parse().ok());
    ByteSize(number.map_or(0, |kib: u64| kib.saturating_mul(1024)))
}

/// `always [madvise] never` → `madvise`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::finding::{Level, levels};
    use super::*;

    #[test]
    fn memory_is_judged_by_its_numbers() {
        let kernel = || Kernel {
            swap_total: ByteSize::gib(8),
            swap_free: ByteSize::gib(8),
            huge_pages: Some("madvise".into()),
            pressure: true,
        };
        let good = || Memory {
            total: ByteSize::gib(32),
            available: ByteSize::gib(28),
            limit: None,
            kernel: Some(kernel()),
        };
        let with = |kernel: Kernel| Memory { kernel: Some(kernel), ..good() };
        assert!(levels(&good().judge()).iter().all(|(_, level)| *level == Level::Ok));
        let cases = [
            (Memory { available: ByteSize::mib(100), ..good() }, "memory", Level::Bad),
            (Memory { available: ByteSize::gib(4), ..good() }, "memory", Level::Warn),
            (Memory { limit: Some(ByteSize::gib(8)), ..good() }, "cgroup", Level::Warn),
            (Memory { limit: Some(ByteSize::gib(64)), ..good() }, "cgroup", Level::Ok),
            (with(Kernel { swap_free: ByteSize::gib(1), ..kernel() }), "swap", Level::Warn),
            (with(Kernel { huge_pages: Some("never".into()), ..kernel() }), "huge pages", Level::Warn),
            (with(Kernel { pressure: false, ..kernel() }), "pressure", Level::Warn),
        ];
        for (facts, check, level) in cases {
            let found = levels(&facts.judge());
            assert!(found.contains(&(check, level)), "{found:?}");
            let others = found.iter().filter(|(name, level)| *name != check && *level != Level::Ok).count();
            assert_eq!(others, 0, "{found:?}");
        }
    }

    #[test]
    fn the_system_s_texts_are_read() {
        assert_eq!(field("A: 1 kB\nSwapFree:   12 kB\n", "SwapFree:"), ByteSize(12288));
        assert_eq!(chosen("always [madvise] never\n").as_deref(), Some("madvise"));
        assert_eq!(chosen("what"), None);
    }
}
