//! `terrace inspect --check`: reads the weights and shows what is damaged.

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::fmt::Write;
use std::ops::ControlFlow;
use std::time::Instant;
use terrace_cli::error::CliError;
use terrace_cli::term::{progress, signals};
use terrace_ggml::cpu::default_threads;
use terrace_ggml::quantize::damage::{self, CheckError, Checked, Damage, Fault};
use terrace_model::{ByteSize, ModelFile, listed};

/// Most names of tensors that were not read.
const MAX_NAMES: usize = 8;

/// The outcome of a check, and the seconds that it took.
pub struct Report {
    found: Checked,
    seconds: f64,
}

impl Report {
    /// Reads all weights of a model, with a progress bar.
    ///
    /// # Errors
    /// A file cannot be read; [`CliError::Interrupted`] after Ctrl-C.
    pub fn of(model: &ModelFile) -> Result<Self, CliError> {
        let style = ProgressStyle::with_template("checking {wide_bar} {bytes}/{total_bytes}, {eta} left");
        let bar = ProgressBar::with_draw_target(Some(model.size().bytes()), progress::target())
            .with_style(style.expect("a constant template"));
        let begin = Instant::now();
        let mut show = |bytes| {
            bar.set_position(bytes);
            if signals::interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let found = signals::busy(|| damage::check(model, default_threads(), &mut show));
        bar.finish_and_clear();
        match found {
            Ok(found) => Ok(Self { found, seconds: begin.elapsed().as_secs_f64() }),
            Err(CheckError::Cancelled) => Err(CliError::Interrupted),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns true if nothing is damaged.
    pub fn is_clean(&self) -> bool {
        self.found.damage.is_empty()
    }

    /// The lines below a table of a model.
    pub fn text(&self) -> String {
        let Checked { damage, tensors, bytes, skipped } = &self.found;
        let outcome = match damage.len() {
            0 => "no damage found".to_owned(),
            1 => "1 finding".to_owned(),
            n => format!("{n} findings"),
        };
        let bytes = ByteSize(*bytes);
        let mut out =
            format!("{:<16} {bytes} in {tensors} tensors, {:.1} s: {outcome}", "checked", self.seconds);
        if !skipped.is_empty() {
            let _ = write!(out, "\n{:<16} {}", "not checked", listed(skipped, MAX_NAMES));
        }
        for one in damage {
            let _ = write!(out, "\n{:<16} {one}", "damaged");
        }
        out
    }

    /// Everything in one JSON object.
    pub fn json(&self) -> Value {
        let damage = self.found.damage.iter().map(|Damage { tensor, ty, slices, fault }| match fault {
            Fault::Zero => {
                json!({ "tensor": tensor, "type": ty, "slices": slices.numbers, "of": slices.of, "fault": "zero" })
            }
            Fault::NotFinite { weights, path, offset } => json!({
                "tensor": tensor, "type": ty, "slices": slices.numbers, "of": slices.of,
                "fault": "not-finite", "weights": weights, "file": path, "offset": offset,
            }),
        });
        json!({
            "tensors": self.found.tensors,
            "bytes": self.found.bytes,
            "seconds": self.seconds,
            "skipped": self.found.skipped,
            "damage": damage.collect::<Vec<_>>(),
        })
    }
}
