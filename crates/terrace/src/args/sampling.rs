//! How the next token is chosen.

use clap::Args;

/// How the next token is chosen.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Temperature; 0 always takes the most likely token
    #[arg(long, value_name = "T", env = "TERRACE_TEMP", default_value_t = 0.8, value_parser = temperature)]
    pub temp: f32,
    /// Sample from the K most likely tokens; 0 for all
    #[arg(long, value_name = "K", env = "TERRACE_TOP_K", default_value_t = 40, value_parser = clap::value_parser!(i32).range(0..))]
    pub top_k: i32,
    /// Sample from the most likely tokens whose probabilities add up to P
    #[arg(long, value_name = "P", env = "TERRACE_TOP_P", default_value_t = 0.95, value_parser = probability)]
    pub top_p: f32,
    /// Leave out tokens less likely than P times the most likely one
    #[arg(long, value_name = "P", env = "TERRACE_MIN_P", default_value_t = 0.05, value_parser = probability)]
    pub min_p: f32,
    /// Seed of the sampler [default: random]
    #[arg(long, value_name = "SEED", env = "TERRACE_SEED")]
    pub seed: Option<u64>,
}

fn temperature(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(t) if t.is_finite() && t >= 0.0 => Ok(t),
        _ => Err("must be a number of 0 or more".into()),
    }
}

fn probability(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(p) if (0.0..=1.0).contains(&p) => Ok(p),
        _ => Err("must be a number from 0 to 1".into()),
    }
}
