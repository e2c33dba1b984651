//! Batches: how many requests `terrace batch` would compute at a time, and how long all of them take.

use crate::commands::batch::{Undone, duration};
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use terrace_cli::error::CliError;
use terrace_engine::Planned;
use terrace_plan::batches::{BatchPlan, BatchWork, fastest, plan_batches};
use terrace_plan::short_number;
use terrace_server::batch::{Input, work_of};

/// Contexts of plans are of multiples of so many tokens, as llama.cpp's are.
const BLOCK: u32 = 256;

/// The requests of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requests {
    /// So many of usual lengths.
    Number(u32),
    /// The requests of a file.
    File(PathBuf),
}

impl FromStr for Requests {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(0) => Err("a batch has at least one request"),
            Ok(number) => Ok(Self::Number(number)),
            Err(_) => Ok(Self::File(text.into())),
        }
    }
}

/// Batches with more and more requests at a time.
#[derive(Debug, Serialize)]
pub struct Batches {
    work: BatchWork,
    /// The number that is done first.
    sequences: u32,
    compared: Vec<BatchPlan>,
}

impl Batches {
    /// Plans a batch on a planned run's machine.
    ///
    /// # Errors
    /// The file cannot be read, or memory holds no context as long as its requests need.
    pub fn of(requests: &Requests, planned: &Planned) -> Result<Self, CliError> {
        let Planned { file, machine, wishes, .. } = planned;
        let expected = wishes.expected;
        let work = match requests {
            Requests::Number(requests) => {
                let context = (expected.prompt + expected.output).next_multiple_of(BLOCK);
                BatchWork { requests: *requests, prompt: expected.prompt, answer: expected.output, context }
            }
            Requests::File(path) => {
                let input = Input::open(path).map_err(Undone::from)?;
                work_of(&input, expected.output).map_err(Undone::from)?
            }
        };
        let compared = plan_batches(file, machine, wishes, work, None)?;
        Ok(Self { work, sequences: fastest(&compared).sequences, compared })
    }

    /// A table, and what a batch would do.
    pub fn text(&self) -> String {
        let BatchWork { requests, prompt, answer, context } = self.work;
        let mut out = format!(
            "\nbatch of {requests} requests: {prompt} tokens of prompt, {answer} of answer, contexts of {context}\n"
        );
        out += &line(["at a time", "contexts", "tokens/s", "read/token", "prompts", "all"]);
        for batch in &self.compared {
            let mark = if batch.sequences == self.sequences { "> " } else { "" };
            out += &line([
                &format!("{mark}{}", batch.sequences),
                &batch.contexts.to_string(),
                &short_number(batch.decode_tok_s),
                &batch.read_per_token.to_string(),
                &short_number(batch.prefill_tok_s),
                &time(batch.seconds),
            ]);
        }
        let best = fastest(&self.compared);
        let _ = writeln!(
            out,
            "terrace batch computes {} at a time: {} tokens/s, prompts included, {}",
            best.sequences,
            short_number(best.tok_s),
            time(best.seconds),
        );
        out
    }
}

fn time(seconds: f64) -> String {
    Duration::try_from_secs_f64(seconds).map_or_else(|_| "-".into(), duration)
}

fn line([number, contexts, rate, read, prompts, all]: [&str; 6]) -> String {
    format!("{number:>9}{contexts:>12}{rate:>10}{read:>12}{prompts:>9}  {all}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_a_number_or_a_file() {
        let of = |text: &str| text.parse::<Requests>().unwrap();
        assert_eq!(of("500"), Requests::Number(500));
        assert_eq!(of("500.jsonl"), Requests::File("500.jsonl".into()));
        assert!("0".parse::<Requests>().is_err());
    }
}
