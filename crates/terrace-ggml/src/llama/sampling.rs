//! Choice of tokens, and its constraints.

use super::sampling_values as values;
use super::token::Token;
use crate::pin::numbers;
use std::hash::{BuildHasher, Hasher, RandomState};

/// Sampling parameters, with the meanings, the order and the neutral values of llama.cpp's samplers
/// (`common_params_sampling`). Parameters that options of a command line set are under their names, or
/// under llama.cpp's.
#[derive(Clone, Debug, PartialEq, clap::Args)]
#[group(id = "SamplerOptions")]
#[command(next_help_heading = "Sampling")]
pub struct Sampling {
    /// Temperature; 0 always takes the most likely token
    #[arg(long, value_name = "T", env = "TERRACE_TEMP", alias = "temperature", default_value_t = Sampling::default().temp, value_parser = values::positive)]
    pub temp: f32,
    /// Sample from the K most likely tokens; 0 or -1 for all
    #[arg(long, value_name = "K", env = "TERRACE_TOP_K", default_value_t = Sampling::default().top_k, value_parser = clap::value_parser!(i32).range(-1..))]
    pub top_k: i32,
    /// Sample from the most likely tokens whose probabilities add up to P
    #[arg(long, value_name = "P", env = "TERRACE_TOP_P", default_value_t = Sampling::default().top_p, value_parser = values::probability)]
    pub top_p: f32,
    /// Leave out tokens less likely than P times the most likely one
    #[arg(long, value_name = "P", env = "TERRACE_MIN_P", default_value_t = Sampling::default().min_p, value_parser = values::probability)]
    pub min_p: f32,
    /// Sample from tokens of typical information content whose probabilities add up to P; 1: off
    #[arg(long = "typical", id = "typical", value_name = "P", env = "TERRACE_TYPICAL", alias = "typical-p", default_value_t = Sampling::default().typical_p, value_parser = values::probability)]
    pub typical_p: f32,
    /// Leave out tokens more than N standard deviations below the highest logit; -1: off
    #[arg(long = "top-nsigma", id = "top_nsigma", value_name = "N", env = "TERRACE_TOP_NSIGMA", alias = "top-n-sigma", allow_negative_numbers = true, default_value_t = Sampling::default().top_n_sigma, value_parser = values::any)]
    pub top_n_sigma: f32,
    /// XTC: probability of leaving out all tokens above the threshold but the least likely one
    #[arg(long, value_name = "P", env = "TERRACE_XTC_PROBABILITY", default_value_t = Sampling::default().xtc_probability, value_parser = values::probability)]
    pub xtc_probability: f32,
    /// Probability threshold for XTC
    #[arg(long, value_name = "P", env = "TERRACE_XTC_THRESHOLD", default_value_t = Sampling::default().xtc_threshold, value_parser = values::probability)]
    pub xtc_threshold: f32,
    /// Vary the temperature by up to T, with the entropy; 0: off
    #[arg(long, value_name = "T", env = "TERRACE_DYNATEMP_RANGE", default_value_t = Sampling::default().dynatemp_range, value_parser = values::positive)]
    pub dynatemp_range: f32,
    /// Exponent of the entropy for --dynatemp-range
    #[arg(long = "dynatemp-exp", id = "dynatemp_exp", value_name = "N", env = "TERRACE_DYNATEMP_EXP", default_value_t = Sampling::default().dynatemp_exponent, value_parser = values::positive)]
    pub dynatemp_exponent: f32,
    /// Number of last tokens that penalties look at; 0: off, -1: all of the context
    #[arg(long, value_name = "TOKENS", env = "TERRACE_REPEAT_LAST_N", allow_negative_numbers = true, default_value_t = Sampling::default().repeat_last_n, value_parser = values::look_back)]
    pub repeat_last_n: i32,
    /// Divide the logits of tokens that already occurred; 1: off
    #[arg(long, value_name = "N", env = "TERRACE_REPEAT_PENALTY", default_value_t = Sampling::default().repeat_penalty, value_parser = values::divisor)]
    pub repeat_penalty: f32,
    /// Lower the logits of tokens that already occurred; 0: off
    #[arg(long, value_name = "N", env = "TERRACE_PRESENCE_PENALTY", allow_negative_numbers = true, default_value_t = Sampling::default().presence_penalty, value_parser = values::any)]
    pub presence_penalty: f32,
    /// Lower the logits of tokens for each time that they already occurred; 0: off
    #[arg(long, value_name = "N", env = "TERRACE_FREQUENCY_PENALTY", allow_negative_numbers = true, default_value_t = Sampling::default().frequency_penalty, value_parser = values::any)]
    pub frequency_penalty: f32,
    /// DRY: lower the logits of tokens that continue a repetition; 0: off
    #[arg(long, value_name = "N", env = "TERRACE_DRY_MULTIPLIER", default_value_t = Sampling::default().dry_multiplier, value_parser = values::positive)]
    pub dry_multiplier: f32,
    /// DRY: base of the penalty's growth with the repetition's length
    #[arg(long, value_name = "N", env = "TERRACE_DRY_BASE", default_value_t = Sampling::default().dry_base, value_parser = values::positive)]
    pub dry_base: f32,
    /// DRY: length of repetitions that have no penalty
    #[arg(long, value_name = "TOKENS", env = "TERRACE_DRY_ALLOWED_LENGTH", default_value_t = Sampling::default().dry_allowed_length, value_parser = values::count)]
    pub dry_allowed_length: i32,
    /// DRY: number of last tokens that are searched; 0: off, -1: all of the context
    #[arg(long, value_name = "TOKENS", env = "TERRACE_DRY_PENALTY_LAST_N", allow_negative_numbers = true, default_value_t = Sampling::default().dry_penalty_last_n, value_parser = values::look_back)]
    pub dry_penalty_last_n: i32,
    /// Adaptive-p: choose tokens near this probability; negative: off
    #[arg(long, value_name = "P", env = "TERRACE_ADAPTIVE_TARGET", allow_negative_numbers = true, default_value_t = Sampling::default().adaptive_target, value_parser = values::target)]
    pub adaptive_target: f32,
    /// Adaptive-p: decay of the running average, from 0 to 0.99
    #[arg(long, value_name = "P", env = "TERRACE_ADAPTIVE_DECAY", default_value_t = Sampling::default().adaptive_decay, value_parser = values::decay)]
    pub adaptive_decay: f32,
    /// Mirostat 1 or 2 in place of top-k, top-p, min-p and typical; 0: off
    #[arg(long, value_name = "0|1|2", env = "TERRACE_MIROSTAT", default_value_t = Sampling::default().mirostat, value_parser = values::version)]
    pub mirostat: i32,
    /// Mirostat's learning rate
    #[arg(long = "mirostat-lr", id = "mirostat_lr", value_name = "N", env = "TERRACE_MIROSTAT_LR", default_value_t = Sampling::default().mirostat_eta, value_parser = values::positive)]
    pub mirostat_eta: f32,
    /// Mirostat's target entropy
    #[arg(long = "mirostat-ent", id = "mirostat_ent", value_name = "N", env = "TERRACE_MIROSTAT_ENT", default_value_t = Sampling::default().mirostat_tau, value_parser = values::positive)]
    pub mirostat_tau: f32,
    /// Add BIAS to the logit of a token: `15043+1`, `15043-2.5`, `15043-inf` (repeatable)
    #[arg(long, value_name = "TOKEN(+|-)BIAS", value_parser = values::bias)]
    pub logit_bias: Vec<(Token, f32)>,
    /// Never end the text
    #[arg(long, env = "TERRACE_IGNORE_EOS")]
    pub ignore_eos: bool,
    /// Seed of the random choice. llama.cpp's random numbers have 32 bits of seed: larger numbers
    /// are folded.
    #[arg(skip)]
    pub seed: u64,
    /// Samplers in the order of their use, separated by semicolons
    // By its full path, as clap takes a `Vec` for a repeatable option.
    #[arg(long = "samplers", id = "samplers", value_name = "NAMES", env = "TERRACE_SAMPLERS", default_value = SamplerKind::names(&SamplerKind::USUAL), value_parser = SamplerKind::order)]
    pub order: std::vec::Vec<SamplerKind>,
    /// DRY: texts that end repetitions.
    #[arg(skip = Sampling::default().dry_sequence_breakers)]
    pub dry_sequence_breakers: Vec<String>,
    /// Tokens that samplers keep at least.
    #[arg(skip)]
    pub min_keep: i32,
    /// Does not end the text before as many tokens.
    #[arg(skip)]
    pub min_tokens: usize,
    /// Constraint of tokens.
    #[arg(skip)]
    pub grammar: Option<Grammar>,
    /// Limit of reasoning.
    #[arg(skip)]
    pub thoughts: Option<Thoughts>,
}

impl Default for Sampling {
    /// llama.cpp's defaults, with a seed from the system.
    fn default() -> Self {
        Self {
            temp: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            seed: Self::random_seed(),
            dynatemp_range: 0.0,
            dynatemp_exponent: 1.0,
            typical_p: 1.0,
            top_n_sigma: -1.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            min_keep: 0,
            repeat_last_n: 64,
            repeat_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            dry_multiplier: 0.0,
            dry_base: 1.75,
            dry_allowed_length: 2,
            dry_penalty_last_n: 64,
            dry_sequence_breakers: ["\n", ":", "\"", "*"].map(String::from).into(),
            mirostat: 0,
            mirostat_tau: 5.0,
            mirostat_eta: 0.1,
            adaptive_target: -1.0,
            adaptive_decay: 0.9,
            order: SamplerKind::USUAL.into(),
            logit_bias: Vec::new(),
            ignore_eos: false,
            min_tokens: 0,
            grammar: None,
            thoughts: None,
        }
    }
}

impl Sampling {
    /// Always the most likely token.
    pub fn greedy() -> Self {
        Self { temp: 0.0, seed: 0, ..Self::default() }
    }

    /// A seed from the system.
    pub fn random_seed() -> u64 {
        // RandomState is seeded by the system, and one random number is enough here. 32 bits are
        // what llama.cpp has, so that a reported seed gives the same text.
        RandomState::new().build_hasher().finish() & 0x7fff_ffff
    }

    /// Adds adaptive-p's sampler if it has a target and is not in the order: without it, the target
    /// would mean nothing.
    pub fn name_adaptive(&mut self) {
        if self.adaptive_target >= 0.0 && !self.order.contains(&SamplerKind::AdaptiveP) {
            self.order.push(SamplerKind::AdaptiveP);
        }
    }

    /// Replaces the grammar, if there is another one.
    pub fn keep_within(&mut self, grammar: Option<Grammar>) {
        if grammar.is_some() {
            self.grammar = grammar;
        }
    }

    /// Returns true if the most likely token is always chosen: every other sampler leaves it where it is.
    pub(super) fn takes_most_likely(&self) -> bool {
        let choosers = [SamplerKind::Infill, SamplerKind::AdaptiveP];
        self.temp <= 0.0
            && self.dynatemp_range == 0.0
            && self.mirostat == 0
            && !choosers.iter().any(|kind| self.order.contains(kind))
            && self.typical_p >= 1.0
            && self.xtc_probability <= 0.0
            && self.repeat_penalty == 1.0
            && self.frequency_penalty == 0.0
            && self.presence_penalty == 0.0
            && self.dry_multiplier == 0.0
            && self.logit_bias.is_empty()
            && !self.ignore_eos
            && self.grammar.is_none()
            && self.thoughts.is_none()
    }

    /// The samplers that are applied, in order. A temperature of 0 or less leaves the most likely token
    /// only, also if the order does not name the temperature; adaptive-p chooses, and so stays last.
    pub(super) fn chain(&self) -> Vec<SamplerKind> {
        let mut chain = self.order.clone();
        if self.temp <= 0.0 && !chain.contains(&SamplerKind::Temperature) {
            let end = chain.iter().position(|kind| *kind == SamplerKind::AdaptiveP).unwrap_or(chain.len());
            chain.insert(end, SamplerKind::Temperature);
        }
        chain
    }

    /// Returns true if choices depend on the tokens of the prompt.
    pub(super) fn looks_back(&self) -> bool {
        let penalises =
            self.repeat_penalty != 1.0 || self.frequency_penalty != 0.0 || self.presence_penalty != 0.0;
        (penalises && self.repeat_last_n != 0) || (self.dry_multiplier != 0.0 && self.dry_penalty_last_n != 0)
    }
}

/// One of llama.cpp's samplers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplerKind {
    /// Repetition by lengths of sequences.
    Dry,
    /// The most likely tokens by number.
    TopK,
    /// The most likely tokens by probability.
    TopP,
    /// Tokens by their ratio to the most likely one.
    MinP,
    /// Tokens of typical information content.
    TypicalP,
    Temperature,
    /// Drops the most likely ones.
    Xtc,
    /// For text within text.
    Infill,
    /// Repetition, presence and frequency.
    Penalties,
    /// By standard deviations.
    TopNSigma,
    /// Towards a probability.
    AdaptiveP,
}

impl SamplerKind {
    /// llama.cpp's order.
    pub const USUAL: [Self; 9] = [
        Self::Penalties,
        Self::Dry,
        Self::TopNSigma,
        Self::TopK,
        Self::TypicalP,
        Self::TopP,
        Self::MinP,
        Self::Xtc,
        Self::Temperature,
    ];

    /// All, with llama.cpp's name, letter and number of each.
    const ALL: [(Self, &'static str, char, i32); 11] = [
        (Self::Dry, "dry", 'd', numbers::SAMPLER_DRY),
        (Self::TopK, "top_k", 'k', numbers::SAMPLER_TOP_K),
        (Self::TopP, "top_p", 'p', numbers::SAMPLER_TOP_P),
        (Self::MinP, "min_p", 'm', numbers::SAMPLER_MIN_P),
        (Self::TypicalP, "typ_p", 'y', numbers::SAMPLER_TYPICAL_P),
        (Self::Temperature, "temperature", 't', numbers::SAMPLER_TEMPERATURE),
        (Self::Xtc, "xtc", 'x', numbers::SAMPLER_XTC),
        (Self::Infill, "infill", 'i', numbers::SAMPLER_INFILL),
        (Self::Penalties, "penalties", 'e', numbers::SAMPLER_PENALTIES),
        (Self::TopNSigma, "top_n_sigma", 's', numbers::SAMPLER_TOP_N_SIGMA),
        (Self::AdaptiveP, "adaptive_p", 'a', numbers::SAMPLER_ADAPTIVE_P),
    ];

    /// llama.cpp's name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(kind, ..)| *kind == self).map_or("", |(_, name, ..)| name)
    }

    /// The samplers of these names, separated by semicolons.
    fn order(names: &str) -> Result<Vec<Self>, String> {
        let names = names.split(';').filter(|name| !name.is_empty());
        let kind = |name| Self::from_name(name).ok_or_else(|| format!("`{name}` is not a sampler"));
        names.map(kind).collect()
    }

    /// The names of samplers, as [`Self::order`] reads them.
    fn names(order: &[Self]) -> String {
        order.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(";")
    }

    /// llama.cpp's number.
    pub(super) fn number(self) -> i32 {
        Self::ALL.iter().find(|(kind, ..)| *kind == self).map_or(0, |(.., number)| *number)
    }

    /// The sampler of this name; llama.cpp's spellings are known.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase().replace('-', "_");
        let name = match name.as_str() {
            "topk" => "top_k",
            "topp" | "nucleus" => "top_p",
            "minp" => "min_p",
            "typical" | "typical_p" | "typ" => "typ_p",
            "temp" => "temperature",
            name => name,
        };
        Self::ALL.iter().find(|(_, known, ..)| *known == name).map(|(kind, ..)| *kind)
    }

    /// The sampler of this letter.
    pub fn from_letter(letter: char) -> Option<Self> {
        Self::ALL.iter().find(|(_, _, known, _)| *known == letter).map(|(kind, ..)| *kind)
    }
}

/// Constraint of tokens, in llama.cpp's form of grammars (GBNF).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grammar {
    /// The grammar.
    pub text: String,
    /// Why there is one.
    pub purpose: Purpose,
    /// It holds only from a trigger on.
    pub lazy: bool,
    /// Begin of the constraint, if it is lazy.
    pub triggers: Vec<Trigger>,
    /// Texts of control tokens that the model writes as part of an answer.
    pub preserved: Vec<String>,
    /// The beginning of the response that the prompt has already.
    pub begun: String,
}

/// Why there is a grammar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// The user gave it: it holds from the answer's first token on.
    #[default]
    User,
    /// The form of the answer: it holds for what the prompt already has of it, too.
    Format,
    /// Calls of tools, likewise.
    Tools,
}

/// Begin of a lazy grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// llama.cpp's number of its kind: a token, a word, a pattern, a pattern of the whole text.
    pub kind: i32,
    /// The word or pattern.
    pub value: String,
    pub token: i32,
}

/// Limit and signs of reasoning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thoughts {
    /// Tokens; `None`: as many as it takes.
    pub tokens: Option<u32>,
    /// The text that begins a thought.
    pub start: String,
    /// The texts that end it; the first one ends a thought that is too long.
    pub ends: Vec<String>,
    /// Written before that.
    pub message: String,
    /// The beginning of the response that the prompt has already.
    pub begun: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        sampling: Sampling,
    }

    fn settings(line: &str) -> Sampling {
        let words = ["test", "--temp", "0"].into_iter().chain(line.split_whitespace());
        let read = CommandLine::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
        Sampling { seed: 0, ..read.sampling }
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

    #[test]
    fn samplers_have_one_name_letter_and_number_each() {
        for (kind, name, letter, number) in SamplerKind::ALL {
            assert_eq!(SamplerKind::from_name(name), Some(kind));
            assert_eq!(SamplerKind::from_letter(letter), Some(kind));
            assert_eq!((kind.name(), kind.number()), (name, number));
        }
        assert_eq!(SamplerKind::from_name("Top-K"), Some(SamplerKind::TopK));
        assert_eq!(SamplerKind::from_name("tfs_z"), None);
    }

    #[test]
    fn only_neutral_parameters_leave_the_most_likely_token() {
        assert!(Sampling::greedy().takes_most_likely());
        let greedy = Sampling::greedy;
        for other in [
            Sampling { temp: 0.1, ..greedy() },
            Sampling { typical_p: 0.5, ..greedy() },
            Sampling { repeat_penalty: 1.1, ..greedy() },
            Sampling { presence_penalty: -0.5, ..greedy() },
            Sampling { dry_multiplier: 0.8, ..greedy() },
            Sampling { ignore_eos: true, ..greedy() },
            Sampling { order: vec![SamplerKind::Infill], ..greedy() },
            Sampling { logit_bias: vec![(Token(1), 3.0)], ..greedy() },
            Sampling { grammar: Some(Grammar::default()), ..greedy() },
        ] {
            assert!(!other.takes_most_likely(), "{other:?}");
        }
        for order in [vec![], vec![SamplerKind::TopK]] {
            assert!(Sampling { order, ..greedy() }.takes_most_likely());
        }
        assert!(Sampling { top_k: 3, min_p: 0.5, min_tokens: 7, ..greedy() }.takes_most_likely());
    }
}
