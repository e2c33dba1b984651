//! Options of sampling.

use super::ConstraintArgs;
use crate::error::CliError;
use clap::Args;
use terrace_ggml::llama::{SamplerKind, Sampling, Token};

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
    /// Samplers in the order of their use, separated by semicolons [default:
    /// penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature]
    #[arg(long, value_name = "NAMES", env = "TERRACE_SAMPLERS", value_parser = names)]
    pub samplers: Option<Order>,
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
        let Self { parameters, seed, samplers, dry_sequence_breakers, constraint } = self;
        let mut settings = Sampling { grammar: constraint.grammar()?, ..parameters.clone() };
        settings.seed = seed.unwrap_or_else(Sampling::random_seed);
        if let Some(Order(order)) = samplers {
            settings.order.clone_from(order);
        }
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

/// Samplers in order: a type of its own, as clap takes a `Vec` for a repeatable option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order(Vec<SamplerKind>);

fn names(text: &str) -> Result<Order, String> {
    let names = text.split(';').filter(|name| !name.is_empty());
    let kind = |name| SamplerKind::from_name(name).ok_or_else(|| format!("`{name}` is not a sampler"));
    names.map(kind).collect::<Result<_, _>>().map(Order)
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
    fn each_option_sets_its_parameter() {
        let greedy = Sampling::greedy;
        for (line, expected) in [
            (
                "--samplers top-k;temp",
                Sampling { order: vec![SamplerKind::TopK, SamplerKind::Temperature], ..greedy() },
            ),
            ("--typical 0.5", Sampling { typical_p: 0.5, ..greedy() }),
            ("--top-nsigma 1.5", Sampling { top_n_sigma: 1.5, ..greedy() }),
            (
                "--xtc-probability 0.5 --xtc-threshold 0.2",
                Sampling { xtc_probability: 0.5, xtc_threshold: 0.2, ..greedy() },
            ),
            (
                "--dynatemp-range 0.5 --dynatemp-exp 2",
                Sampling { dynatemp_range: 0.5, dynatemp_exponent: 2.0, ..greedy() },
            ),
            (
                "--repeat-last-n -1 --repeat-penalty 1.1",
                Sampling { repeat_last_n: -1, repeat_penalty: 1.1, ..greedy() },
            ),
            ("--presence-penalty -0.5", Sampling { presence_penalty: -0.5, ..greedy() }),
            ("--frequency-penalty 0.5", Sampling { frequency_penalty: 0.5, ..greedy() }),
            (
                "--dry-multiplier 0.8 --dry-base 2",
                Sampling { dry_multiplier: 0.8, dry_base: 2.0, ..greedy() },
            ),
            (
                "--dry-allowed-length 3 --dry-penalty-last-n 9",
                Sampling { dry_allowed_length: 3, dry_penalty_last_n: 9, ..greedy() },
            ),
            ("--dry-sequence-breaker none", Sampling { dry_sequence_breakers: vec![], ..greedy() }),
            (
                "--dry-sequence-breaker a --dry-sequence-breaker b",
                Sampling { dry_sequence_breakers: vec!["a".into(), "b".into()], ..greedy() },
            ),
            (
                "--mirostat 2 --mirostat-lr 0.2 --mirostat-ent 3",
                Sampling { mirostat: 2, mirostat_eta: 0.2, mirostat_tau: 3.0, ..greedy() },
            ),
            (
                "--logit-bias 5+1.5 --logit-bias 6-inf",
                Sampling { logit_bias: vec![(Token(5), 1.5), (Token(6), f32::NEG_INFINITY)], ..greedy() },
            ),
            ("--ignore-eos", Sampling { ignore_eos: true, ..greedy() }),
        ] {
            assert_eq!(settings(line), expected, "{line}");
        }
        let adaptive = settings("--adaptive-target 0.5 --adaptive-decay 0.5");
        assert_eq!((adaptive.adaptive_target, adaptive.adaptive_decay), (0.5, 0.5));
        assert_eq!(adaptive.order.last(), Some(&SamplerKind::AdaptiveP));
    }

    #[test]
    fn values_without_a_meaning_are_refused() {
        for line in [
            "--samplers top_k;tfs_z",
            "--typical 1.5",
            "--top-nsigma nan",
            "--repeat-penalty 0",
            "--repeat-last-n -2",
            "--adaptive-decay 1",
            "--mirostat 3",
            "--logit-bias 5",
            "--logit-bias=-5+1",
            "--logit-bias 5+-1",
            "--logit-bias x+1",
        ] {
            let words = std::iter::once("test").chain(line.split_whitespace());
            assert!(CommandLine::try_parse_from(words).is_err(), "{line}");
        }
    }
}
