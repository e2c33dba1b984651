//! llama.cpp's samplers, under its names and with its defaults.

use clap::Args;
use terrace_ggml::llama::{SamplerKind, Sampling, Token};

/// llama.cpp's samplers.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplerArgs {
    /// Samplers in the order of their use, separated by semicolons [default:
    /// penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature]
    #[arg(long, value_name = "NAMES", env = "TERRACE_SAMPLERS", value_parser = names, conflicts_with = "letters")]
    pub samplers: Option<Order>,
    /// Sampler order as letters: edskypmxt
    #[arg(id = "letters", long = "sampler-seq", alias = "sampling-seq", value_name = "LETTERS", value_parser = letters)]
    pub letters: Option<Order>,
    /// Sample from tokens of typical information content whose probabilities add up to P; 1: off
    #[arg(long, value_name = "P", env = "TERRACE_TYPICAL", alias = "typical-p", default_value_t = 1.0, value_parser = probability)]
    pub typical: f32,
    /// Leave out tokens more than N standard deviations below the highest logit; -1: off
    #[arg(long, value_name = "N", env = "TERRACE_TOP_NSIGMA", alias = "top-n-sigma", default_value_t = -1.0, value_parser = any, allow_negative_numbers = true)]
    pub top_nsigma: f32,
    /// XTC: probability of leaving out all tokens above the threshold but the least likely one
    #[arg(long, value_name = "P", env = "TERRACE_XTC_PROBABILITY", default_value_t = 0.0, value_parser = probability)]
    pub xtc_probability: f32,
    /// Probability threshold for XTC
    #[arg(long, value_name = "P", env = "TERRACE_XTC_THRESHOLD", default_value_t = 0.1, value_parser = probability)]
    pub xtc_threshold: f32,
    /// Vary the temperature by up to T, with the entropy; 0: off
    #[arg(long, value_name = "T", env = "TERRACE_DYNATEMP_RANGE", default_value_t = 0.0, value_parser = positive)]
    pub dynatemp_range: f32,
    /// Exponent of the entropy for --dynatemp-range
    #[arg(long, value_name = "N", env = "TERRACE_DYNATEMP_EXP", default_value_t = 1.0, value_parser = positive)]
    pub dynatemp_exp: f32,
    /// Number of last tokens that penalties look at; 0: off, -1: all of the context
    #[arg(long, value_name = "TOKENS", env = "TERRACE_REPEAT_LAST_N", default_value_t = 64, value_parser = look_back, allow_negative_numbers = true)]
    pub repeat_last_n: i32,
    /// Divide the logits of tokens that already occurred; 1: off
    #[arg(long, value_name = "N", env = "TERRACE_REPEAT_PENALTY", default_value_t = 1.0, value_parser = divisor)]
    pub repeat_penalty: f32,
    /// Lower the logits of tokens that already occurred; 0: off
    #[arg(long, value_name = "N", env = "TERRACE_PRESENCE_PENALTY", default_value_t = 0.0, value_parser = any, allow_negative_numbers = true)]
    pub presence_penalty: f32,
    /// Lower the logits of tokens for each time that they already occurred; 0: off
    #[arg(long, value_name = "N", env = "TERRACE_FREQUENCY_PENALTY", default_value_t = 0.0, value_parser = any, allow_negative_numbers = true)]
    pub frequency_penalty: f32,
    /// DRY: lower the logits of tokens that continue a repetition; 0: off
    #[arg(long, value_name = "N", env = "TERRACE_DRY_MULTIPLIER", default_value_t = 0.0, value_parser = positive)]
    pub dry_multiplier: f32,
    /// DRY: base of the penalty's growth with the repetition's length
    #[arg(long, value_name = "N", env = "TERRACE_DRY_BASE", default_value_t = 1.75, value_parser = positive)]
    pub dry_base: f32,
    /// DRY: length of repetitions that have no penalty
    #[arg(long, value_name = "TOKENS", env = "TERRACE_DRY_ALLOWED_LENGTH", default_value_t = 2, value_parser = count)]
    pub dry_allowed_length: i32,
    /// DRY: number of last tokens that are searched; 0: off, -1: all of the context
    #[arg(long, value_name = "TOKENS", env = "TERRACE_DRY_PENALTY_LAST_N", default_value_t = 64, value_parser = look_back, allow_negative_numbers = true)]
    pub dry_penalty_last_n: i32,
    /// Adaptive-p: choose tokens near this probability; negative: off
    #[arg(long, value_name = "P", env = "TERRACE_ADAPTIVE_TARGET", default_value_t = -1.0, value_parser = target, allow_negative_numbers = true)]
    pub adaptive_target: f32,
    /// Adaptive-p: decay of the running average, from 0 to 0.99
    #[arg(long, value_name = "P", env = "TERRACE_ADAPTIVE_DECAY", default_value_t = 0.9, value_parser = decay)]
    pub adaptive_decay: f32,
    /// Mirostat 1 or 2 in place of top-k, top-p, min-p and typical; 0: off
    #[arg(long, value_name = "0|1|2", env = "TERRACE_MIROSTAT", default_value_t = 0, value_parser = version)]
    pub mirostat: i32,
    /// Mirostat's learning rate
    #[arg(long, value_name = "N", env = "TERRACE_MIROSTAT_LR", default_value_t = 0.1, value_parser = positive)]
    pub mirostat_lr: f32,
    /// Mirostat's target entropy
    #[arg(long, value_name = "N", env = "TERRACE_MIROSTAT_ENT", default_value_t = 5.0, value_parser = positive)]
    pub mirostat_ent: f32,
    /// DRY: a text that ends repetitions, instead of the usual ones (newline, colon, quotation mark
    /// and asterisk); `none` for no such text (repeatable)
    #[arg(id = "dry-sequence-breaker", long = "dry-sequence-breaker", value_name = "TEXT")]
    pub dry_sequence_breakers: Vec<String>,
    /// Add BIAS to the logit of a token: `15043+1`, `15043-2.5`, `15043-inf` (repeatable)
    #[arg(long, value_name = "TOKEN(+|-)BIAS", value_parser = bias)]
    pub logit_bias: Vec<(Token, f32)>,
    /// Never end the text
    #[arg(long, env = "TERRACE_IGNORE_EOS")]
    pub ignore_eos: bool,
}

impl SamplerArgs {
    /// Sets what these options set.
    pub fn set(&self, settings: &mut Sampling) {
        let Self {
            samplers,
            letters,
            typical,
            top_nsigma,
            xtc_probability,
            xtc_threshold,
            dynatemp_range,
            dynatemp_exp,
            repeat_last_n,
            repeat_penalty,
            presence_penalty,
            frequency_penalty,
            dry_multiplier,
            dry_base,
            dry_allowed_length,
            dry_penalty_last_n,
            adaptive_target,
            adaptive_decay,
            mirostat,
            mirostat_lr,
            mirostat_ent,
            dry_sequence_breakers,
            logit_bias,
            ignore_eos,
        } = self;
        if let Some(Order(order)) = samplers.as_ref().or(letters.as_ref()) {
            settings.order.clone_from(order);
        }
        settings.typical_p = *typical;
        settings.top_n_sigma = *top_nsigma;
        settings.xtc_probability = *xtc_probability;
        settings.xtc_threshold = *xtc_threshold;
        settings.dynatemp_range = *dynatemp_range;
        settings.dynatemp_exponent = *dynatemp_exp;
        settings.repeat_last_n = *repeat_last_n;
        settings.repeat_penalty = *repeat_penalty;
        settings.presence_penalty = *presence_penalty;
        settings.frequency_penalty = *frequency_penalty;
        settings.dry_multiplier = *dry_multiplier;
        settings.dry_base = *dry_base;
        settings.dry_allowed_length = *dry_allowed_length;
        settings.dry_penalty_last_n = *dry_penalty_last_n;
        settings.adaptive_target = *adaptive_target;
        settings.adaptive_decay = *adaptive_decay;
        settings.mirostat = *mirostat;
        settings.mirostat_eta = *mirostat_lr;
        settings.mirostat_tau = *mirostat_ent;
        if !dry_sequence_breakers.is_empty() {
            let given = dry_sequence_breakers.iter().filter(|text| *text != "none");
            settings.dry_sequence_breakers = given.cloned().collect();
        }
        settings.logit_bias.clone_from(logit_bias);
        settings.ignore_eos = *ignore_eos;
        settings.name_adaptive();
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

fn letters(text: &str) -> Result<Order, String> {
    let kind =
        |letter| SamplerKind::from_letter(letter).ok_or_else(|| format!("`{letter}` is not a sampler"));
    text.chars().map(kind).collect::<Result<_, _>>().map(Order)
}

fn bias(text: &str) -> Result<(Token, f32), String> {
    let wrong = || "must be a token's number, + or -, and a number: 15043+1".to_owned();
    let sign = text.find(['+', '-']).ok_or_else(wrong)?;
    let token: i32 = text[..sign].trim().parse().map_err(|_| wrong())?;
    let bias: f32 = text[sign + 1..].parse().map_err(|_| wrong())?;
    if token < 0 || bias.is_nan() || bias.is_sign_negative() {
        return Err(wrong());
    }
    Ok((Token(token), if text[sign..].starts_with('-') { -bias } else { bias }))
}

/// A probability.
pub fn probability(text: &str) -> Result<f32, String> {
    number(text, |p| (0.0..=1.0).contains(&p), "a number from 0 to 1")
}

fn any(text: &str) -> Result<f32, String> {
    number(text, |_| true, "a number")
}

fn positive(text: &str) -> Result<f32, String> {
    number(text, |n| n >= 0.0, "a number of 0 or more")
}

fn divisor(text: &str) -> Result<f32, String> {
    number(text, |n| n >= 1e-6, "a number above 0")
}

fn target(text: &str) -> Result<f32, String> {
    number(text, |p| p <= 1.0, "a number from 0 to 1, or negative")
}

fn decay(text: &str) -> Result<f32, String> {
    number(text, |p| (0.0..=0.99).contains(&p), "a number from 0 to 0.99")
}

fn number(text: &str, valid: impl Fn(f32) -> bool, what: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(number) if number.is_finite() && valid(number) => Ok(number),
        _ => Err(format!("must be {what}")),
    }
}

fn look_back(text: &str) -> Result<i32, String> {
    whole(text, -1, "a number of tokens, or -1")
}

fn count(text: &str) -> Result<i32, String> {
    whole(text, 0, "a number of tokens")
}

fn whole(text: &str, least: i32, what: &str) -> Result<i32, String> {
    match text.parse::<i32>() {
        Ok(number) if number >= least => Ok(number),
        _ => Err(format!("must be {what}")),
    }
}

fn version(text: &str) -> Result<i32, String> {
    match text.parse::<i32>() {
        Ok(version @ 0..=2) => Ok(version),
        _ => Err("must be 0, 1 or 2".into()),
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
        samplers: SamplerArgs,
    }

    fn settings(line: &str) -> Sampling {
        let mut settings = Sampling::greedy();
        let words = std::iter::once("test").chain(line.split_whitespace());
        CommandLine::try_parse_from(words)
            .unwrap_or_else(|error| panic!("{line}: {error}"))
            .samplers
            .set(&mut settings);
        settings
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
            (
                "--sampler-seq kt",
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
            "--sampler-seq q",
            "--samplers top_k --sampler-seq k",
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
