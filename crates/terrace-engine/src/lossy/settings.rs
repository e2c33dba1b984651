//! Lossy settings.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use terrace_backend::LossyRouting;

/// Experts of a token that are chosen by score alone, unless stated.
const KEEP: u32 = 1;
/// Largest values: beyond them, everything is substituted or dropped.
const MOST_PRIOR: f64 = 1.0;
const MOST_DROP: f64 = 16.0;
const MOST_KLD: f64 = 10.0;
/// Settings that a budget chooses: of this strength, these; of others, by powers of the strength. A small bonus beside
/// drops reads 2 to 6 % less than drops alone at the same divergence; one of a tenth of the drops, up to 7 % more
/// (`docs/benchmarks/quality.md`).
const STRENGTH: f64 = 0.02;
const DROP: f64 = 0.5;
const PRIOR: f64 = 0.019;
const PRIOR_KEEP: u32 = 2;
const DROP_EXPONENT: f64 = 0.4;
const PRIOR_EXPONENT: f64 = 0.8;
/// As a share of 1 / top-k, the weights below which experts are read in fewer bits, unless stated; and
/// the experts of a token that are always read in full.
const LOW_BELOW: f64 = 1.0;
const LOW_KEEP: u32 = 1;
/// The text for every weight.
const ALL: &str = "all";

/// Lossy settings; none by default. In JSON as their text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LossySettings {
    /// A budget: the mean divergence per token, in nats, that is kept by measuring it. It chooses the
    /// bonus, what is dropped and what is little weight; `None`: these are fixed.
    pub kld: Option<f64>,
    /// The bonus of experts in memory, as a share of the range of a token's scores (arXiv 2412.00099).
    pub prior: f64,
    /// Experts of a token that are chosen by score alone. Only with a prior.
    pub keep: u32,
    /// Experts that would have to be read are dropped if their share of the weights is below this over
    /// top-k.
    pub drop: f64,
    /// A file with the experts in fewer bits, for those that would have to be read and have little weight.
    #[serde(serialize_with = "terrace_model::path_text::serialize_option")]
    pub low: Option<PathBuf>,
    /// Little weight is a share below this over top-k; infinite: any. Only with such a file.
    pub low_below: f64,
    /// Experts of a token, by weight, that are always read in full. Only with such a file.
    pub low_keep: u32,
    /// Layers that are skipped, ascending.
    pub skip: Vec<u32>,
    /// Experts per token, in place of the model's number.
    pub experts: Option<u32>,
}

impl LossySettings {
    /// Returns true if they change nothing.
    pub fn is_exact(&self) -> bool {
        !self.routes() && self.skip.is_empty() && self.experts.is_none()
    }

    /// Returns true if the choice of experts depends on what is in memory.
    pub fn routes(&self) -> bool {
        self.budget().is_some() || self.prior > 0.0 || self.drop > 0.0 || self.lowers()
    }

    /// The budget, if one is to be kept.
    pub fn budget(&self) -> Option<f64> {
        self.kld.filter(|&kld| kld > 0.0)
    }

    /// Returns true if experts are read in fewer bits.
    pub fn lowers(&self) -> bool {
        self.low.is_some() && (self.low_below > 0.0 || self.budget().is_some())
    }

    /// The fixed settings of this strength, which a budget chooses: about the mean divergence, in nats per
    /// token, that they cost the trained model of the tests (`docs/benchmarks/quality.md`); with a
    /// file of experts in fewer bits more, which the budget's measurements find out.
    /// `low_below_per_drop` is [`LowFile::below_per_drop`](super::LowFile::below_per_drop).
    #[must_use]
    pub fn at(&self, strength: f64, low_below_per_drop: f64) -> Self {
        let thousandths = |value: f64| (value * 1000.0).round() / 1000.0;
        let relative = strength.max(0.0) / STRENGTH;
        let drop = thousandths(DROP * relative.powf(DROP_EXPONENT)).min(MOST_DROP);
        let prior = thousandths(PRIOR * relative.powf(PRIOR_EXPONENT)).min(MOST_PRIOR);
        let low_below =
            if self.low.is_some() { thousandths(low_below_per_drop * drop).min(MOST_DROP) } else { 0.0 };
        let keep = if prior > 0.0 { PRIOR_KEEP } else { 0 };
        Self { kld: None, prior, keep, drop, low_below, ..self.clone() }
    }

    /// The part that the backend does from the start: nothing, if a budget is to be kept.
    pub fn routing(&self) -> Option<LossyRouting> {
        let of = |value: f64| value as f32;
        let fixed = self.routes() && self.budget().is_none();
        fixed.then(|| LossyRouting {
            prior: of(self.prior),
            keep: self.keep,
            drop: of(self.drop),
            low: if self.low.is_some() { of(self.low_below) } else { 0.0 },
            low_keep: self.low_keep,
            spared: None,
        })
    }
}

impl fmt::Display for LossySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.budget().map(|kld| format!("kld={kld}")));
        if self.prior > 0.0 {
            parts.push(format!("prior={}", self.prior));
            parts.push(format!("keep={}", self.keep));
        }
        if self.drop > 0.0 {
            parts.push(format!("drop={}", self.drop));
        }
        if let Some(path) = self.low.as_ref().filter(|_| self.lowers()) {
            parts.push(format!("low={}", path.display()));
            if self.budget().is_none() {
                let finite = self.low_below.is_finite();
                let below = if finite { self.low_below.to_string() } else { ALL.to_owned() };
                parts.push(format!("low-below={below}"));
            }
            parts.push(format!("low-keep={}", self.low_keep));
        }
        if !self.skip.is_empty() {
            let layers: Vec<String> = self.skip.iter().map(u32::to_string).collect();
            parts.push(format!("skip={}", layers.join("+")));
        }
        parts.extend(self.experts.map(|experts| format!("experts={experts}")));
        if parts.is_empty() { f.pad("nothing") } else { f.pad(&parts.join(",")) }
    }
}

impl From<LossySettings> for String {
    fn from(settings: LossySettings) -> Self {
        settings.to_string()
    }
}

impl TryFrom<String> for LossySettings {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for LossySettings {
    type Err = String;

    /// Reads `prior=0.1,keep=1,drop=0.5,low=FILE,low-below=1,low-keep=1,skip=3+4,experts=6`, each part at
    /// most once, or `kld=0.02`, alone or with `low` and `low-keep`. The file's path has no comma.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut this = Self { keep: KEEP, low_below: LOW_BELOW, low_keep: LOW_KEEP, ..Self::default() };
        let mut seen: Vec<&str> = Vec::new();
        for part in text.split(',') {
            let (name, value) =
                part.split_once('=').ok_or_else(|| format!("`{part}` is not a setting like prior=0.1"))?;
            if seen.contains(&name) {
                return Err(format!("{name} is given twice"));
            }
            seen.push(name);
            match name {
                "kld" => this.kld = Some(number(name, value, MOST_KLD)?),
                "prior" => this.prior = number(name, value, MOST_PRIOR)?,
                "drop" => this.drop = number(name, value, MOST_DROP)?,
                "keep" => this.keep = count(name, value)?,
                "low" if value.is_empty() => return Err("low must name a file".into()),
                "low" => this.low = Some(value.into()),
                "low-below" if value == ALL => this.low_below = f64::INFINITY,
                "low-below" => this.low_below = number(name, value, MOST_DROP)?,
                "low-keep" => this.low_keep = count(name, value)?,
                "experts" => match count(name, value)? {
                    0 => return Err("experts must be at least 1".into()),
                    experts => this.experts = Some(experts),
                },
                "skip" => {
                    let layers: Result<Vec<u32>, String> =
                        value.split('+').map(|layer| count("skip", layer)).collect();
                    this.skip = layers?;
                    this.skip.sort_unstable();
                    this.skip.dedup();
                }
                _ => {
                    return Err(format!(
                        "`{name}` is none of kld, prior, keep, drop, low, low-below, low-keep, skip, experts"
                    ));
                }
            }
        }
        if seen.contains(&"kld") {
            let other = |name: &&&str| !["kld", "low", "low-keep"].contains(*name);
            match seen.iter().find(other) {
                Some(name @ (&"skip" | &"experts")) => {
                    return Err(format!(
                        "kld does not measure what {name} costs, so they cannot be combined"
                    ));
                }
                Some(name) => return Err(format!("kld chooses {name}, so they cannot be combined")),
                None => this.low_below = 0.0,
            }
        }
        if seen.contains(&"keep") && !seen.contains(&"prior") {
            return Err("keep needs prior".into());
        }
        if !seen.contains(&"prior") {
            this.keep = 0;
        }
        if !seen.contains(&"low") {
            if let Some(name) = ["low-below", "low-keep"].iter().find(|name| seen.contains(name)) {
                return Err(format!("{name} needs low"));
            }
            (this.low_below, this.low_keep) = (0.0, 0);
        }
        Ok(this)
    }
}

fn number(name: &str, value: &str, most: f64) -> Result<f64, String> {
    match value.parse::<f64>() {
        Ok(number) if (0.0..=most).contains(&number) => Ok(number),
        _ => Err(format!("{name} must be a number from 0 to {most}")),
    }
}

fn count(name: &str, value: &str) -> Result<u32, String> {
    value.parse().map_err(|_| format!("{name} must be a whole number, not `{value}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn settings_are_read_in_any_order() {
        let read = |text: &str| text.parse::<LossySettings>();
        let all = read("skip=4+2+4,drop=0.5,experts=6,prior=0.1").unwrap();
        let skip = vec![2, 4];
        let expected =
            LossySettings { prior: 0.1, keep: 1, drop: 0.5, skip, experts: Some(6), ..Default::default() };
        assert_eq!(all, expected);
        assert_eq!(all.to_string(), "prior=0.1,keep=1,drop=0.5,skip=2+4,experts=6");
        assert!(all.routes() && read("prior=0").unwrap().is_exact());
        assert_eq!(LossySettings::default().to_string(), "nothing");
        let low = read("low=/a/q2.gguf").unwrap();
        assert_eq!(low.to_string(), "low=/a/q2.gguf,low-below=1,low-keep=1");
        assert!(low.routes() && read("low=q2.gguf,low-below=0").unwrap().is_exact());
        let all = read("low-keep=0,low-below=all,low=a").unwrap();
        assert_eq!((all.low_below, all.low_keep), (f64::INFINITY, 0));
        let budget = read("kld=0.02").unwrap();
        assert!(budget.routes() && budget.routing().is_none() && !budget.is_exact());
        assert_eq!(budget.to_string(), "kld=0.02");
        let low = read("low=a,kld=0.5,low-keep=2").unwrap();
        assert!(low.lowers() && low.to_string() == "kld=0.5,low=a,low-keep=2", "{low}");
        assert!(read("kld=0").unwrap().is_exact() && read("kld=0,low=a").unwrap().is_exact());
        for (text, part) in [
            ("kld=-1", "from 0 to 10"),
            ("kld=inf", "from 0 to 10"),
            ("kld=0.02,prior=0.1", "kld chooses prior"),
            ("keep=1,kld=0.02", "kld chooses keep"),
            ("drop=0.1,kld=0.02", "kld chooses drop"),
            ("low=a,low-below=1,kld=0.02", "kld chooses low-below"),
            ("skip=2,kld=0.02", "does not measure what skip costs"),
            ("kld=0.02,experts=2", "does not measure what experts costs"),
            ("", "not a setting"),
            ("low=", "name a file"),
            ("low-below=1", "needs low"),
            ("low-keep=2,prior=0.1", "needs low"),
            ("low=a,low-below=17", "from 0 to 16"),
            ("prior", "not a setting"),
            ("prior=2", "from 0 to 1"),
            ("prior=-0.1", "from 0 to 1"),
            ("prior=nan", "from 0 to 1"),
            ("drop=17", "from 0 to 16"),
            ("prior=0.1,prior=0.2", "twice"),
            ("keep=2", "needs prior"),
            ("experts=0", "at least 1"),
            ("skip=", "whole number"),
            ("skip=1+x", "whole number"),
            ("cold=1", "none of"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn budgets_are_read_again(kld in 0.000_001_f64..10.0, low in prop::option::of(0_u32..4)) {
            let (low, low_keep) = (low.map(|_| PathBuf::from("q2.gguf")), low.unwrap_or_default());
            let settings = LossySettings { kld: Some(kld), low, low_keep, ..Default::default() };
            let json = serde_json::to_string(&settings).unwrap();
            prop_assert_eq!(serde_json::from_str::<LossySettings>(&json).unwrap(), settings);
        }

        #[test]
        fn what_is_written_is_read_again(
            prior in 0.0_f64..1.0, keep in 0_u32..9, drop in 0.0_f64..16.0,
            skip in prop::collection::btree_set(1_u32..90, 0..4), experts in prop::option::of(1_u32..9),
            low in prop::option::of((prop_oneof![Just(f64::INFINITY), 0.001..16.0], 0_u32..4)),
        ) {
            let keep = if prior > 0.0 { keep } else { 0 };
            let (low_below, low_keep) = low.unwrap_or_default();
            let low = low.map(|_| PathBuf::from("q2.gguf"));
            let skip = skip.into_iter().collect();
            let settings = LossySettings { kld: None, prior, keep, drop, low, low_below, low_keep, skip, experts };
            prop_assume!(!settings.is_exact());
            let json = serde_json::to_string(&settings).unwrap();
            prop_assert_eq!(serde_json::from_str::<LossySettings>(&json).unwrap(), settings);
        }
    }
}
