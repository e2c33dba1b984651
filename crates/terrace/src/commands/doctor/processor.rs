//! The CPU's features, compared with those that ggml was built for.

use super::{Checks, Finding};
use std::path::Path;

pub struct Processor {
    has: Vec<String>,
    built: Vec<String>,
    /// Of a program for all processors.
    level: Option<&'static str>,
    cores: usize,
}

impl Checks for Processor {
    fn gather(_: &Path) -> Self {
        Self {
            has: terrace_host::cpu_features(),
            built: terrace_ggml::cpu::built_features().into_iter().map(str::to_owned).collect(),
            level: terrace_ggml::cpu::level(),
            cores: terrace_ggml::cpu::default_threads(),
        }
    }

    fn judge(&self) -> Vec<Finding> {
        let without = |all: &[String], others: &[String]| {
            all.iter().filter(|name| !others.contains(name)).cloned().collect::<Vec<_>>().join(" ")
        };
        let (lacking, idle) = (without(&self.built, &self.has), without(&self.has, &self.built));
        let simd = if !lacking.is_empty() {
            let text = format!("kernels were built for {lacking}, which this CPU lacks");
            Finding::bad("cpu features", text, "build on this machine")
        } else if !idle.is_empty() && self.level.is_some() {
            let built = self.built.join(" ");
            let text = format!("kernels use {built}; those of a build on this machine also {idle}");
            Finding::ok("cpu features", text)
        } else if !idle.is_empty() {
            let text = format!("kernels were built without {idle}, which this CPU has");
            Finding::warn(
                "cpu features",
                text,
                "build with RUSTFLAGS=\"-C target-cpu=native\" on this machine",
            )
        } else {
            Finding::ok("cpu features", format!("kernels use {}", self.built.join(" ")))
        };
        let build = match self.level {
            None => "from source, for one kind of processor".to_owned(),
            Some(level) => format!("for all processors, with kernels of {level}"),
        };
        let cores = format!("{} cores for this process", self.cores);
        vec![Finding::ok("cpu", cores), Finding::ok("build", build), simd]
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::{Level, levels};
    use super::*;

    #[test]
    fn builds_for_other_processors_are_told() {
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let of = |level, has: &[&str], built: &[&str]| {
            levels(&Processor { has: own(has), built: own(built), level, cores: 4 }.judge())[2].1
        };
        assert_eq!(of(None, &["avx2", "avx512f"], &["avx2", "avx512f"]), Level::Ok);
        assert_eq!(of(None, &["avx2", "avx512f"], &["avx2"]), Level::Warn);
        assert_eq!(of(None, &["avx2"], &["avx2", "avx512f"]), Level::Bad);
        // A program for all processors does not have every combination, and has chosen.
        assert_eq!(of(Some("x86-64-v3"), &["avx2", "avxvnni"], &["avx2"]), Level::Ok);
        assert_eq!(of(Some("x86-64-v4"), &["avx2"], &["avx2", "avx512f"]), Level::Bad);
    }
}
