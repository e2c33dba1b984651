//! Options of older releases and of forks: adrianhoehne/llama.cpp's hot cache and others.

use super::{
    Alias, HotCacheFile, Lane, LaneOption, Opt, Ours, Parsed, Switch, Takes, alias, always, ignored,
    ignored_value,
};
use crate::config::refusal::Refusal;

pub const ALIASES: &[Alias] = &[
    // adrianhoehne/llama.cpp.
    alias(&["--moe-hot-cache"], HotCacheFile),
    alias(&["--moe-layer-perf-out"], Opt("learn-to")),
    alias(&["--moe-hot-cache-warmup-prompt"], Opt("warmup-prompt")),
    alias(&["--moe-hot-cache-max-mib"], Lane(LaneOption::Most(0))),
    alias(&["--moe-hot-cache-auto-reserve-mib"], Lane(LaneOption::Reserve(0))),
    alias(&["--moe-hot-cache-device"], Lane(LaneOption::Device(0))),
    alias(&["--moe-hot-cache-second-max-mib"], Lane(LaneOption::Most(1))),
    alias(&["--moe-hot-cache-second-auto-reserve-mib"], Lane(LaneOption::Reserve(1))),
    alias(&["--moe-hot-cache-second-device"], Lane(LaneOption::Device(1))),
    alias(&["--moe-hot-cache-third-max-mib"], Lane(LaneOption::Most(2))),
    alias(&["--moe-hot-cache-third-auto-reserve-mib"], Lane(LaneOption::Reserve(2))),
    alias(&["--moe-hot-cache-third-device"], Lane(LaneOption::Device(2))),
    alias(&["--moe-hot-cache-lane"], Lane(LaneOption::Both)),
    alias(&["--moe-hot-cache-weighting", "--moe-hot-cache-qwen-weighting"], Opt("hot-weighting")),
    alias(&["--moe-hot-cache-layer-curve", "--moe-hot-cache-qwen-layer-curve"], Opt("hot-layer-curve")),
    alias(&["--moe-hot-cache-update-rate"], Parsed("hot-update", Takes::Value, update_rate)),
    alias(&["--moe-hot-cache-pp-reduce-merge"], Parsed("hot-cache", Takes::Value, reduce_merge)),
    ignored_value(
        &["--moe-hot-cache-pp-dense-min-tokens", "--moe-hot-cache-pp-min-hot-expert-ratio"],
        "whether copies take part in prompts follows from measured times",
    ),
    ignored(&["--log-tg-progress"], "-v and GET /metrics show speeds"),
    always(&["--no-log-tg-progress"]),
    alias(&["--moe-hot-cache-device-strategy"], Parsed("hot-cache", Takes::Value, device_strategy)),
    // Forks that read weights on demand.
    ignored(&["--tensor-read-lazy"], "what does not fit streams from disk"),
    // Older releases of llama.cpp.
    alias(&["-dio", "--direct-io"], Switch("direct", Some("on"))),
    always(&["-ndio", "--no-direct-io", "--no-kv-cache-shift", "--log-enable", "-ins", "--instruct"]),
];

/// `--moe-hot-cache-update-rate`: the share of the copies that is exchanged after each answer.
fn update_rate(value: &str) -> Result<Ours, Refusal> {
    let rate = value.parse::<f64>().ok().filter(|rate| (0.0..=1.0).contains(rate));
    match rate {
        None => Err(Refusal {
            why: "must be a number from 0 to 1",
            hint: "use --hot-update off, or leave it out",
        }),
        Some(0.0) => Ok(Ours::word("--hot-update=off")),
        Some(_) => Ok(Ours::note("copies are exchanged between tokens; --hot-update SIZE says how much")),
    }
}

/// `--moe-hot-cache-pp-reduce-merge`: the order in which the rows of a prompt are added up.
fn reduce_merge(value: &str) -> Result<Ours, Refusal> {
    match value {
        "off" => Ok(Ours::default()),
        _ => Ok(Ours::note("rows are added up in the model's own order")),
    }
}

/// `--moe-hot-cache-device-strategy`: how devices share copies. `even-split` are bands of layers.
fn device_strategy(value: &str) -> Result<Ours, Refusal> {
    match value {
        "even-split" => Ok(Ours::word("--hot-split=off")),
        "hot-even" => Ok(Ours::word("--hot-split=even")),
        "warm" => Ok(Ours::word("--hot-split=warm")),
        _ => Err(Refusal {
            why: "must be warm, hot-even or even-split",
            hint: "use --hot-split off, even or warm",
        }),
    }
}
