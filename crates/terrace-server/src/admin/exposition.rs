//! Metrics in Prometheus' text format.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use std::fmt::{Display, Write};

/// Text in Prometheus' format; all names begin with `terrace_`.
#[derive(Default)]
pub struct Exposition(String);

impl Exposition {
    /// The response with all of the text.
    pub fn respond(self) -> Response {
        ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], self.0).into_response()
    }

    /// All of the text.
    #[cfg(test)]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Adds lines as they are.
    pub fn lines(&mut self) -> &mut String {
        &mut self.0
    }

    /// Begins a family of samples.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP terrace_{name} {help}\n# TYPE terrace_{name} {kind}");
    }

    /// Adds a sample with labels.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.0, "terrace_{name}");
        for (index, (label, of)) in labels.iter().enumerate() {
            let of = of.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
            let _ = write!(self.0, "{}{label}=\"{of}\"", if index == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    /// Adds a counter.
    pub fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "counter", help);
        self.sample(name, &[], value);
    }

    /// Adds a gauge.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_explained_and_samples_have_labels() {
        let mut text = Exposition::default();
        text.counter("a_total", "As", 3);
        text.family("b", "gauge", "Bs");
        text.sample("b", &[("c", "d"), ("e", "f")], 0.5);
        text.sample("b", &[("c", "a \\ and \"b\"\n")], 1);
        let expected = "# HELP terrace_a_total As\n# TYPE terrace_a_total counter\nterrace_a_total 3\n\
            # HELP terrace_b Bs\n# TYPE terrace_b gauge\nterrace_b{c=\"d\",e=\"f\"} 0.5\n\
            terrace_b{c=\"a \\\\ and \\\"b\\\"\\n\"} 1\n";
        assert_eq!(text.0, expected);
    }
}
