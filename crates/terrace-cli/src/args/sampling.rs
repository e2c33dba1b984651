//! Options of sampling.

use super::ConstraintArgs;
use crate::error::CliError;
use clap::Args;
use terrace_ggml::llama::{Sampling, Token};

/// Options of sampling.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// The parameters of llama.cpp's samplers.
    #[command(flatten)]
    pub parameters: Sampling,
    /// Seed of the sampler [default: random]
    #[arg(long, value_name = "SEED", env = "TERRACE_SEED")]
    pub seed: Option<u64>,
    /// DRY: a text that ends repetitions, instead of the usual ones (newline, colon, quotation mark
    /// and asterisk); `none` for no such text (repeatable)
    #[arg(id = "dry-sequence-breaker", long = "dry-sequence-breaker", value_name = "TEXT")]
    pub dry_sequence_breakers: Vec<String>,
    /// Constraints of tokens.
    #[command(flatten)]
    pub constraint: ConstraintArgs,
}

impl SamplingArgs {
    /// The sampler's settings. Without `--seed` each run has a random seed.
    ///
    /// # Errors
    /// A grammar or a schema cannot be read or is not valid.
    pub fn settings(&self) -> Result<Sampling, CliError> {
        let Self { parameters, seed, dry_sequence_breakers, constraint } = self;
        let mut settings = Sampling { grammar: constraint.grammar()?, ..parameters.clone() };
        settings.seed = seed.unwrap_or_else(Sampling::random_seed);
        if !dry_sequence_breakers.is_empty() {
            let given = dry_sequence_breakers.iter().filter(|text| *text != "none");
            settings.dry_sequence_breakers = given.cloned().collect();
        }
        settings.name_adaptive();
        Ok(settings)
    }

    /// Checks tokens that options name, for a model with a vocabulary of this many.
    ///
    /// # Errors
    /// There is no such token.
    pub fn check(&self, vocabulary: usize) -> Result<(), CliError> {
        let known = |token: i32| usize::try_from(token).is_ok_and(|token| token < vocabulary);
        match self.parameters.logit_bias.iter().find(|(token, _)| !known(token.0)) {
            None => Ok(()),
            Some((Token(token), _)) => Err(CliError::Usage {
                message: format!(
                    "--logit-bias names token {token}, but the vocabulary has {vocabulary} tokens"
                ),
                hint: "tokens are numbered from 0".into(),
            }),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        sampling: SamplingArgs,
    }

    fn settings(line: &str) -> Sampling {
        let words = ["test", "--temp", "0", "--seed", "0"].into_iter().chain(line.split_whitespace());
        let read = CommandLine::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
        read.sampling.settings().unwrap()
    }

    #[test]
    fn without_options_they_are_llama_cpps() {
        assert_eq!(settings(""), Sampling::greedy());
    }

    #[test]
    fn texts_that_end_repetitions_replace_the_usual_ones() {
        let ended_by = |line: &str| settings(line).dry_sequence_breakers;
        assert_eq!(ended_by("--dry-sequence-breaker none"), [""; 0]);
        assert_eq!(ended_by("--dry-sequence-breaker a --dry-sequence-breaker b"), ["a", "b"]);
    }

    #[test]
    fn a_target_adds_its_sampler() {
        let adaptive = settings("--adaptive-target 0.5 --adaptive-decay 0.5");
        assert_eq!((adaptive.adaptive_target, adaptive.adaptive_decay), (0.5, 0.5));
        assert_eq!(adaptive.order.last(), Some(&terrace_ggml::llama::SamplerKind::AdaptiveP));
    }
}
