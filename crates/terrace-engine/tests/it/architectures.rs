//! All architectures of the pinned llama.cpp, as `terrace quantize` writes them, streamed through
//! the smallest budget: prefill, decode and a reloaded tensor are stock llama.cpp's, bit for bit.
//!
//! Nothing here lists what works. An architecture of a later release is tested as soon as it is
//! pinned, and has to run, or to be named in `made`.

use crate::budgets::minimum;
use crate::made::{NOT_MADE, NOT_RUN, PARTS, REFUSED};
use crate::reloading::{Trace, dir, from_file, load, options, trace};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use terrace_engine::options::MemoryOptions;
use terrace_engine::{Engine, Mode, Options, ReloadError};
use terrace_plan::{Budget, Manage};
use terrace_quantize::{QuantizeOptions, QuantizePlan};
use terrace_testkit::released::{Released, architectures};

/// One mixture after the other.
const MIXTURES: [&str; 6] = ["Q4_K_M", "Q5_0", "Q3_K_M", "Q8_0", "IQ4_NL", "Q6_K"];

mod every_architecture_of_the_release_is_exact {
    terrace_testkit::each!(super::part: first = 0, second = 1, third = 2, fourth = 3);
}

fn part(part: usize) {
    let all = architectures();
    assert!(all.len() > 140, "{all:?}");
    for (name, _) in NOT_MADE.iter().chain(&NOT_RUN) {
        assert!(all.iter().any(|arch| arch == name), "{name} is none of the release's");
    }
    let dir = dir();
    let mut wrong = Vec::new();
    // Stock first: once Terrace is installed, no stock run is left in this process.
    let mine = all.iter().enumerate().filter(|(number, _)| number % PARTS == part);
    let subjects: Vec<Subject> =
        mine.filter_map(|(number, arch)| Subject::new(dir.path(), number, arch, &mut wrong)).collect();
    for subject in &subjects {
        wrong.extend(subject.streamed());
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), subjects.len(), wrong.join("\n"));
}

/// A model with what stock llama.cpp computes of it.
struct Subject {
    name: String,
    model: PathBuf,
    moe: bool,
    expected: Trace,
    /// A tensor, a file in which it has other values, and what stock llama.cpp computes of that.
    other: (String, PathBuf, Trace),
}

impl Subject {
    fn new(dir: &Path, number: usize, arch: &str, wrong: &mut Vec<String>) -> Option<Self> {
        if let Some((_, why)) = NOT_MADE.iter().find(|(name, _)| *name == arch) {
            if Released::new(arch, true).is_ok() {
                wrong.push(format!("{arch}: it {why}, but a model could be made"));
            }
            return None;
        }
        if NOT_RUN.iter().any(|(name, _)| *name == arch) {
            return None;
        }
        let released = match Released::new(arch, true) {
            Ok(released) => released,
            Err(error) => {
                wrong.push(format!("{arch}: {error}"));
                return None;
            }
        };
        // llama.cpp's quantiser does not find the layers of these.
        let mixture = (!arch.starts_with("t5")).then(|| MIXTURES[number % MIXTURES.len()]);
        let write = |file: &str, other: Option<(&str, u64)>| {
            let (full, path) = (dir.join("full.gguf"), dir.join(file));
            released.write(&full, 1, other).unwrap();
            let Some(mixture) = mixture else {
                std::fs::rename(&full, &path).unwrap();
                return path;
            };
            let options = QuantizeOptions {
                threads: 1,
                overwrite: true,
                ..QuantizeOptions::new(&full, mixture.parse().unwrap())
            };
            QuantizePlan::new(&options).unwrap().write(&path, &mut |_| ControlFlow::Continue(())).unwrap();
            path
        };
        let model = write(&format!("{arch}.gguf"), None);
        let stock = |model: &Path| {
            let options = Options { mode: Mode::Stock { repack: false }, ..options(model, Manage::None) };
            Engine::load(options, &mut |_| ControlFlow::Continue(())).map(|mut engine| trace(&mut engine))
        };
        let refused = REFUSED.iter().find(|(names, _)| names.contains(&arch));
        let expected = match (stock(&model), refused) {
            (Ok(expected), None) => expected,
            (Err(error), Some((_, why))) if error.to_string().contains(why) => return None,
            (Ok(_), Some((_, why))) => {
                wrong.push(format!("{arch}: it runs, but is said to be {why}"));
                return None;
            }
            (Err(error), _) => {
                wrong.push(format!("{arch}: {error}"));
                return None;
            }
        };
        // llama.cpp makes optional tensors as well, some of which a graph with others leaves out.
        let file = format!("{arch}-other.gguf");
        let other = of_a_layer(&released, number).find_map(|tensor| {
            let file = write(&file, Some((tensor, 2)));
            let then = stock(&file).unwrap();
            (then != expected).then(|| (tensor.to_owned(), file, then))
        });
        if other.is_none() {
            wrong.push(format!("{arch}: none of its matrices counts"));
        }
        let (moe, name) = (released.has_experts(), format!("{arch} in {}", mixture.unwrap_or("F32")));
        Some(Self { name, model, moe, expected, other: other? })
    }

    /// Runs the model with Terrace, and returns what differs.
    fn streamed(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let least = Some(Budget::Bytes(minimum(&self.model, Manage::All)));
        let experts = self.moe.then_some((Manage::Experts, None));
        for (stream, budget) in
            [(Manage::All, least), (Manage::All, None), (Manage::None, None)].into_iter().chain(experts)
        {
            let of = options(&self.model, stream);
            let ram_budget = budget.unwrap_or(of.memory.ram_budget);
            let memory = MemoryOptions { ram_budget, ..of.memory };
            let mut engine = load(Options { memory, ..of });
            let mut check = |what: &str, got: &Trace, expected: &Trace| {
                if got != expected {
                    wrong.push(format!("{}: {what}, streaming {stream}", self.name));
                }
            };
            check("as loaded", &trace(&mut engine), &self.expected);
            let (tensor, file, then) = &self.other;
            match engine.swap(&[from_file(tensor, file)]) {
                Ok(_) => check(&format!("after a reload of {tensor}"), &trace(&mut engine), then),
                // The smallest budget has no room for two versions of a matrix that does not stream.
                Err(ReloadError::OverBudget { .. }) if budget.is_some() => {
                    check("after a refused reload", &trace(&mut engine), &self.expected);
                }
                Err(error) => wrong.push(format!("{}: {tensor}, streaming {stream}: {error}", self.name)),
            }
        }
        wrong
    }
}

/// The matrices of layers, of the FFN first, beginning with another one for each number.
fn of_a_layer(released: &Released, number: usize) -> impl Iterator<Item = &str> {
    let of_ffn = |name: &&str| name.contains("ffn_") && !name.contains("norm") && !name.contains("inp");
    let (mut first, rest): (Vec<&str>, Vec<&str>) =
        released.matrices().filter(|name| name.contains("blk.")).partition(of_ffn);
    let start = number % first.len().max(1);
    first.rotate_left(start);
    first.into_iter().chain(rest)
}
