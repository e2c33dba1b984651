//! How the next token is chosen.

use super::{ConstraintArgs, SamplerArgs};
use crate::error::CliError;
use clap::Args;
use terrace_ggml::llama::{Sampling, Token};

/// How the next token is chosen.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Temperature; 0 always takes the most likely token
    #[arg(long, value_name = "T", env = "TERRACE_TEMP", alias = "temperature", default_value_t = 0.8, value_parser = temperature)]
    pub temp: f32,
    /// Sample from the K most likely tokens; 0 or -1 for all
    #[arg(long, value_name = "K", env = "TERRACE_TOP_K", default_value_t = 40, value_parser = clap::value_parser!(i32).range(-1..))]
    pub top_k: i32,
    /// Sample from the most likely tokens whose probabilities add up to P
    #[arg(long, value_name = "P", env = "TERRACE_TOP_P", default_value_t = 0.95, value_parser = super::samplers::probability)]
    pub top_p: f32,
    /// Leave out tokens less likely than P times the most likely one
    #[arg(long, value_name = "P", env = "TERRACE_MIN_P", default_value_t = 0.05, value_parser = super::samplers::probability)]
    pub min_p: f32,
    /// Seed of the sampler [default: random]
    #[arg(long, value_name = "SEED", env = "TERRACE_SEED")]
    pub seed: Option<u64>,
    /// The rest of llama.cpp's samplers.
    #[command(flatten)]
    pub samplers: SamplerArgs,
    /// What may be chosen.
    #[command(flatten)]
    pub constraint: ConstraintArgs,
}

impl SamplingArgs {
    /// The sampler's settings. Without `--seed` each run has a random seed.
    ///
    /// # Errors
    /// A grammar or a schema cannot be read or is not valid.
    pub fn settings(&self) -> Result<Sampling, CliError> {
        let Self { temp, top_k, top_p, min_p, seed, samplers, constraint } = self;
        let mut settings = Sampling {
            temp: *temp,
            top_k: *top_k,
            top_p: *top_p,
            min_p: *min_p,
            seed: seed.unwrap_or_else(Sampling::random_seed),
            grammar: constraint.grammar()?,
            ..Sampling::default()
        };
        samplers.set(&mut settings);
        Ok(settings)
    }

    /// Checks tokens that options name, for a model with a vocabulary of this many.
    ///
    /// # Errors
    /// There is no such token.
    pub fn check(&self, vocabulary: usize) -> Result<(), CliError> {
        let known = |token: i32| usize::try_from(token).is_ok_and(|token| token < vocabulary);
        match self.samplers.logit_bias.iter().find(|(token, _)| !known(token.0)) {
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

fn temperature(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(t) if t.is_finite() && t >= 0.0 => Ok(t),
        _ => Err("must be a number of 0 or more".into()),
    }
}
