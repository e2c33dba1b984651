//! Prompts, conversations, sampling, what is printed and logged.

use super::{Alias, LOADS, Means, Opt, OptionUnless, Ours, Parsed, RUN, Refused, SERVE, Switch, Takes};
use super::{Ignored, Refusal, alias, always, ignored, ignored_value, no};
use terrace_ggml::llama::SamplerKind;

const SPEEDS: &str = "-v prints speeds";
const LOG: &str = "messages go to stderr; -v and -vv print more";
const GREEDY: &str = "this command samples no tokens";
const TURNS: &str = "the chat template defines the format of turns";

pub const ALIASES: &[Alias] = &[
    // Prompts.
    alias(&["-n", "--predict", "--n-predict"], OptionUnless("n", &["-1", "-2"])),
    alias(&["-bf", "--binary-file"], Opt("file")),
    alias(&["-e", "--escape"], Means::Escapes(true)),
    alias(&["--no-escape"], Means::Escapes(false)),
    always(&["--no-display-prompt"]),
    ignored(&["--display-prompt"], "only the response is printed"),
    ignored(&["--verbose-prompt"], "only the response is printed"),
    ignored_value(&["-ptc", "--print-token-count"], SPEEDS),
    ignored(&["-sp", "--special"], "special tokens are not printed"),
    alias(&["--prompt-cache-all"], Means::Always("prompt-cache")),
    alias(&["-r", "--reverse-prompt"], Opt("stop")),
    alias(&["-r", "--reverse-prompt"], Ignored(SERVE, Takes::Value, "requests list stop strings in `stop`")),
    // Conversations.
    alias(&["-cnv", "--conversation"], Switch(RUN, None)),
    alias(&["-no-cnv", "--no-conversation"], Means::Always(RUN)),
    alias(&["-i", "--interactive", "-if", "--interactive-first"], Means::Interactive),
    alias(&["-sys", "--system-prompt"], Means::System { file: false }),
    alias(&["-sysf", "--system-prompt-file"], Means::System { file: true }),
    alias(&["-st", "--single-turn"], Means::Always(RUN)),
    ignored(
        &["-mli", "--multiline-input"],
        "a line is a message; \"\"\" begins and ends one of several lines",
    ),
    ignored(&["--simple-io"], "text goes to stdout as it is"),
    no(&["--in-prefix", "--in-suffix", "--in-prefix-bos"], TURNS, "use --chat-template-file FILE"),
    always(&["--jinja"]),
    ignored(&["--no-jinja"], "chat templates are always Jinja"),
    no(
        &["--skip-chat-parsing"],
        "reasoning, text and tool calls are always separated",
        "use --reasoning-format none, which leaves reasoning in the text",
    ),
    always(&["--no-skip-chat-parsing"]),
    alias(&["-rea"], Opt("reasoning")),
    ignored_value(
        &["--reasoning-budget-message"],
        "reasoning that exceeds its budget ends without a message",
    ),
    ignored(&["--reasoning-preserve", "--no-reasoning-preserve"], TURNS),
    // Sampling.
    alias(&["-s", "--seed"], OptionUnless("seed", &["-1"])),
    alias(&["--temperature"], Opt("temp")),
    alias(&["--top-k"], Parsed("top-k", Takes::Value, top_k)),
    alias(&["--sampler-seq", "--sampling-seq"], Parsed("samplers", Takes::Value, sampler_letters)),
    alias(&["--top-n-sigma"], Opt("top-nsigma")),
    alias(&["--typical-p"], Opt("typical")),
    alias(&["-l"], Opt("logit-bias")),
    alias(&["-j"], Opt("json-schema")),
    alias(&["-jf"], Opt("json-schema-file")),
    // Commands that sample nothing.
    ignored_value(
        &["-s", "--seed", "-l", "--logit-bias", "--temp", "--temperature", "--top-k", "--top-p"],
        GREEDY,
    ),
    ignored_value(&["--min-p", "--top-nsigma", "--top-n-sigma", "--typical", "--typical-p"], GREEDY),
    ignored_value(
        &["--samplers", "--sampler-seq", "--sampling-seq", "--xtc-probability", "--xtc-threshold"],
        GREEDY,
    ),
    ignored_value(
        &["--repeat-last-n", "--repeat-penalty", "--presence-penalty", "--frequency-penalty"],
        GREEDY,
    ),
    ignored_value(
        &["--dry-multiplier", "--dry-base", "--dry-allowed-length", "--dry-penalty-last-n"],
        GREEDY,
    ),
    ignored_value(&["--dry-sequence-breaker", "--adaptive-target", "--adaptive-decay"], GREEDY),
    ignored_value(
        &["--dynatemp-range", "--dynatemp-exp", "--mirostat", "--mirostat-lr", "--mirostat-ent"],
        GREEDY,
    ),
    ignored_value(
        &["--grammar", "--grammar-file", "-j", "--json-schema", "-jf", "--json-schema-file"],
        GREEDY,
    ),
    ignored(&["--ignore-eos"], GREEDY),
    ignored_value(&["-n", "--predict", "--n-predict"], "this command generates no text"),
    ignored(&["-e", "--escape", "--no-escape"], "only `terrace run` processes escapes in prompts"),
    // What is printed and logged.
    alias(&["-co", "--color"], Ignored(LOADS, Takes::Maybe, "the text is printed without colours")),
    alias(&["--log-verbose"], Parsed(LOADS, Takes::Nothing, |_| Ok(Ours::word("--verbose")))),
    alias(&["-lv", "--verbosity", "--log-verbosity"], Parsed(LOADS, Takes::Value, verbosity)),
    ignored(&["--perf", "--show-timings"], SPEEDS),
    alias(&["--no-perf"], Means::NoPerf),
    always(&["--no-perf", "--no-show-timings"]),
    ignored(&["--log-disable"], LOG),
    ignored_value(&["--log-file"], LOG),
    ignored_value(&["--log-prompts-dir"], "prompts are never logged"),
    alias(&["--log-colors"], Ignored(LOADS, Takes::Maybe, "NO_COLOR=1 turns colours off")),
    ignored(&["--log-prefix", "--no-log-prefix", "--log-timestamps", "--no-log-timestamps"], LOG),
    alias(&["--log-jsonl"], Switch("log-format", Some("json"))),
    ignored(&["--log-jsonl"], LOG),
    always(&["--no-log-jsonl"]),
    alias(&["--usage"], Parsed(LOADS, Takes::Nothing, |_| Ok(Ours::word("--help")))),
    alias(
        &["--completion-bash"],
        Refused(
            LOADS,
            Refusal { why: "it prints a script and exits", hint: "use `terrace completions bash`" },
        ),
    ),
];

/// llama.cpp reads the whole number at the beginning: guides have `--top-k 0.0`.
fn top_k(value: &str) -> Result<Ours, Refusal> {
    let whole = value.split_once('.').filter(|(_, rest)| rest.bytes().all(|byte| byte == b'0'));
    Ok(Ours::word(format!("--top-k={}", whole.map_or(value, |(whole, _)| whole))))
}

/// Samplers in order, a letter each.
fn sampler_letters(value: &str) -> Result<Ours, Refusal> {
    let kinds: Option<Vec<&str>> =
        value.chars().map(|letter| SamplerKind::from_letter(letter).map(SamplerKind::name)).collect();
    match kinds {
        Some(kinds) => Ok(Ours::word(format!("--samplers={}", kinds.join(";")))),
        None => Err(Refusal {
            why: "must be letters of samplers, such as edskypmxt",
            hint: "use --samplers NAMES",
        }),
    }
}

/// llama.cpp's levels: 3 is its default, and 4 and 5 print more.
fn verbosity(value: &str) -> Result<Ours, Refusal> {
    match value.parse::<i64>() {
        Ok(..=3) => Ok(Ours::default()),
        Ok(4) => Ok(Ours::word("--verbose")),
        Ok(_) => Ok(Ours::word("-vv")),
        Err(_) => Err(Refusal { why: "must be a number", hint: "leave it out, or use -v" }),
    }
}
