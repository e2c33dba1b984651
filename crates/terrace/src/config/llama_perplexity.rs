//! Options of llama-perplexity for `terrace perplexity`, llama.cpp's and ik_llama.cpp's: scripts that start it
//! need another path and nothing else. Those that [`aliases`] translates are not here. What cannot change a
//! measurement is left out, and one warning lists it; what would change it, and is not supported, stays on
//! the command line and is refused there.

use super::aliases::{Means, Takes as AliasTakes, aliases};
use super::refusal::{Refusal, Refused};
use super::rewrite::known;
use clap::Command;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The name under which the program is `terrace perplexity`.
const PROGRAM: &str = "llama-perplexity";

/// Options without a value that cannot change a measurement.
const IDLE_SWITCHES: &[&str] = &[
    "--adaptive-updt-w-cur",
    "--all-logits",
    "--check-tensors",
    "--color",
    "--cont-batching",
    "--display-prompt",
    "--dump-kv-cache",
    "--ignore-eos",
    "--interactive",
    "--kv-unified",
    "--log-append",
    "--log-disable",
    "--log-enable",
    "--log-jsonl",
    "--log-new",
    "--log-prefix",
    "--log-timestamps",
    "--lora-init-without-apply",
    "--metrics",
    "--minilog",
    "--no-cont-batching",
    "--no-display-prompt",
    "--no-escape",
    "--no-host",
    "--no-kv-unified",
    "--no-log-jsonl",
    "--no-log-prefix",
    "--no-log-timestamps",
    "--no-perf",
    "--no-slots",
    "--no-warmup",
    "--offline",
    "--parallel-tool-calls",
    "--penalize-nl",
    "--perf",
    "--perplexity",
    "--prompt-cache-all",
    "--prompt-cache-ro",
    "--send-done",
    "--simple-io",
    "--special",
    "--swa-full",
    "--verbose-prompt",
    "--warmup",
    "--warmup-batch",
    "-cb",
    "-co",
    "-dkvc",
    "-kvu",
    "-no-kvu",
    "-nocb",
    "-pps",
    "-ptcall",
    "-sp",
    "-wb",
];

/// Options with a value that cannot change a measurement.
const IDLE_VALUES: &[&str] = &[
    "--adaptive-decay",
    "--adaptive-target",
    "--alias",
    "--api-key",
    "--api-key-file",
    "--backend-sampling",
    "--cache-ram",
    "--cache-ram-n-min",
    "--cache-ram-similarity",
    "--chat-template",
    "--chat-template-file",
    "--chat-template-kwargs",
    "--cpu-mask",
    "--cpu-mask-batch",
    "--cpu-range",
    "--cpu-range-batch",
    "--cpu-strict",
    "--cpu-strict-batch",
    "--ctx-checkpoints",
    "--defrag-thold",
    "--dry-allowed-length",
    "--dry-base",
    "--dry-multiplier",
    "--dry-penalty-last-n",
    "--dry-sequence-breaker",
    "--dynatemp-exp",
    "--dynatemp-range",
    "--fit-ctx",
    "--frequency-penalty",
    "--grammar",
    "--grammar-file",
    "--host",
    "--json-schema",
    "--json-schema-file",
    "--keep",
    "--log-colors",
    "--log-file",
    "--log-format",
    "--log-verbosity",
    "--logdir",
    "--logit-bias",
    "--lookup-cache-dynamic",
    "--lookup-cache-static",
    "--min-p",
    "--mirostat",
    "--mirostat-ent",
    "--mirostat-lr",
    "--n-predict",
    "--p-split",
    "--path",
    "--poll",
    "--poll-batch",
    "--port",
    "--predict",
    "--presence-penalty",
    "--print-token-count",
    "--prio",
    "--prio-batch",
    "--prompt-cache",
    "--reasoning",
    "--reasoning-budget",
    "--reasoning-format",
    "--repeat-last-n",
    "--repeat-penalty",
    "--reverse-prompt",
    "--sampler-seq",
    "--samplers",
    "--sampling-seq",
    "--seed",
    "--sequences",
    "--slot-prompt-similarity",
    "--slot-save-path",
    "--system-prompt-file",
    "--temp",
    "--temperature",
    "--tfs",
    "--threads-http",
    "--timeout",
    "--top-k",
    "--top-n-sigma",
    "--top-nsigma",
    "--top-p",
    "--typical",
    "--typical-p",
    "--verbosity",
    "--xtc-probability",
    "--xtc-threshold",
    "-C",
    "-Cb",
    "-Cr",
    "-Crb",
    "-a",
    "-bs",
    "-cram",
    "-dt",
    "-j",
    "-jf",
    "-l",
    "-lcd",
    "-lcs",
    "-ld",
    "-lv",
    "-n",
    "-np",
    "-ns",
    "-ps",
    "-ptc",
    "-r",
    "-rea",
    "-s",
    "-spf",
    "-sps",
    "-to",
];

/// What comes after the name of an option.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Nothing,
    Value,
    /// A value if it is one of these words.
    OneOf(&'static [&'static str]),
}

use Takes::{Nothing, OneOf, Value};

/// Options that another program understands in a way that has no counterpart here, and what Terrace does
/// instead.
struct Instead {
    names: &'static [(&'static str, Takes)],
    does: &'static str,
}

const ON_OFF: &[&str] = &["on", "off", "auto", "0", "1", "true", "false"];

const INSTEAD: &[Instead] = &[
    Instead {
        names: &[
            ("-mla", Value),
            ("--mla-use", Value),
            ("-amb", Value),
            ("--attention-max-batch", Value),
            ("-no-fug", Nothing),
            ("--no-fused-up-gate", Nothing),
            ("-no-mmad", Nothing),
            ("--no-fused-mul-multiadd", Nothing),
            ("-fdn", Value),
            ("--fused-delta-net", Value),
            ("-rcache", Nothing),
            ("--rope-cache", Nothing),
            ("-gap", Value),
            ("--graph-attn-precision", Value),
        ],
        does: "graphs are llama.cpp's, with its own latent attention",
    },
    Instead {
        names: &[
            ("-fmoe", Nothing),
            ("--fused-moe", Nothing),
            ("-no-fmoe", Nothing),
            ("--no-fused-moe", Nothing),
            ("-ger", Nothing),
            ("--grouped-expert-routing", Nothing),
        ],
        does: "blocks of experts always run as one node",
    },
    Instead {
        names: &[("-rtr", Nothing), ("--run-time-repack", Nothing)],
        does: "weights keep the layout of the file, so that they can be replaced (--repack repacks)",
    },
    Instead {
        names: &[("-ser", Value), ("--smart-expert-reduction", Value)],
        does: "all experts are computed (--lossy experts=N computes fewer)",
    },
    Instead {
        names: &[
            ("-wgt", Value),
            ("--worst-graph-tokens", Value),
            ("-mea", Value),
            ("--max-extra-alloc", Value),
            ("-gr", Nothing),
            ("--graph-reuse", Nothing),
            ("-no-gr", Nothing),
            ("--no-graph-reuse", Nothing),
            ("-sas", Nothing),
            ("--scheduler-async", Nothing),
        ],
        does: "llama.cpp sizes, schedules and reuses graphs by itself",
    },
    Instead {
        names: &[("-cuda", Value), ("--cuda-params", Value)],
        does: "the CUDA backend is configured by its environment variables",
    },
    Instead {
        names: &[
            ("-khad", Nothing),
            ("--k-cache-hadamard", Nothing),
            ("-vhad", Nothing),
            ("--v-cache-hadamard", Nothing),
        ],
        does: "keys and values are cached as llama.cpp computes them",
    },
    Instead {
        names: &[
            ("-mqkv", Nothing),
            ("--merge-qkv", Nothing),
            ("-muge", Nothing),
            ("--merge-up-gate-experts", Nothing),
        ],
        does: "weights stay apart as in the file",
    },
    Instead {
        names: &[
            ("-smgs", Nothing),
            ("--split-mode-graph-scheduling", Nothing),
            ("-smf16", Nothing),
            ("--split-mode-f16", Nothing),
            ("-smf32", Nothing),
            ("--split-mode-f32", Nothing),
            ("-grt", Value),
            ("--graph-reduce-type", Value),
        ],
        does: "layers are divided as the plan says (--split-mode tensor slices them)",
    },
    Instead {
        names: &[
            ("-op", Value),
            ("--offload-policy", Value),
            ("-no-ooae", Nothing),
            ("--no-offload-only-active-experts", Nothing),
        ],
        does: "measured times decide which prompts are computed on devices (--op-offload off: none)",
    },
    Instead {
        names: &[
            ("--fit", OneOf(ON_OFF)),
            ("-fit", OneOf(ON_OFF)),
            ("--fit-margin", Value),
            ("--fit-target", Value),
            ("-fitt", Value),
            ("-gfm", Value),
            ("--gpu-fit-margin", Value),
            ("-ts", Value),
            ("--tensor-split", Value),
            ("-mg", Value),
            ("--main-gpu", Value),
        ],
        does: "the plan fits the model to the devices (--vram-budget and --vram-reserve limit them)",
    },
    Instead {
        names: &[("--numa", Value)],
        does: "the kernel decides where memory is allocated (start terrace with numactl)",
    },
    Instead {
        names: &[("--mlock", Nothing)],
        does: "weights that are read lie in memory of the process, which is not locked (--stream none reads all)",
    },
    Instead {
        names: &[
            ("-thp", Nothing),
            ("--transparent-huge-pages", Nothing),
            ("--defer-experts", Nothing),
            ("--prefetch-experts", Nothing),
            ("--prefetch-experts-threads", Value),
        ],
        does: "the store reads experts ahead, into large pages",
    },
    Instead {
        names: &[("-vq", Nothing), ("--validate-quants", Nothing)],
        does: "--verify checks what is read",
    },
];

/// The words without those options, with Terrace's words for a base of logits, and warnings about what was
/// left out. Words of other commands stay as they are.
///
/// # Errors
/// The options for a base contradict each other, or would give another result.
pub fn take(cli: &Command, words: Vec<OsString>) -> Result<(Vec<OsString>, Vec<String>), Refused> {
    let words = by_name(words);
    let Some(command) = cli.find_subcommand("perplexity") else { return Ok((words, Vec::new())) };
    let mut words = words.into_iter().peekable();
    let mut out: Vec<OsString> = words.by_ref().take(1).collect();
    let mut taken = Taken::default();
    let mut here = false;
    while let Some(word) = words.next() {
        let text = word.to_string_lossy().into_owned();
        if !here && !text.starts_with('-') {
            here = text == "perplexity";
            out.push(word);
            if !here {
                break;
            }
            continue;
        }
        if text == "--" {
            out.push(word);
            break;
        }
        let scope = if here { command } else { cli };
        let name = text.split('=').next().unwrap_or_default();
        let attached = text.split_once('=').map(|(_, value)| OsString::from(value));
        let mut value = |takes: Takes| match takes {
            Nothing => None,
            _ if attached.is_some() => attached.clone(),
            Value => words.next(),
            OneOf(known) => words.next_if(|next| known.iter().any(|known| next == known)),
        };
        if !here || !taken.option(name, &mut value)? {
            out.push(word);
            if attached.is_none() && takes_value(cli, scope, name) {
                out.extend(words.next());
            }
        }
    }
    out.extend(taken.base()?);
    out.extend(words);
    Ok((out, taken.warnings()))
}

/// The command line of a program that was started by the name of llama.cpp's.
fn by_name(mut words: Vec<OsString>) -> Vec<OsString> {
    let named = |word: &OsString| Path::new(word).file_stem() == Some(OsStr::new(PROGRAM));
    if words.first().is_some_and(named) {
        words.insert(1, "perplexity".into());
    }
    words
}

/// Whether the next word is the value of an option of Terrace, in one of its spellings.
fn takes_value(cli: &Command, command: &Command, name: &str) -> bool {
    let alias = aliases().find(|alias| alias.names.contains(&name));
    let aliased = alias.is_some_and(|alias| match alias.means {
        Means::Option(_) | Means::OptionUnless(..) | Means::Lane(_) | Means::System { .. } => true,
        Means::Model | Means::Hub | Means::HubFile => true,
        Means::Parsed(_, takes, _) | Means::Ignored(_, takes, _) => takes == AliasTakes::Value,
        Means::Switch(..) | Means::Always(_) | Means::Refused(..) | Means::Renamed(_) => false,
        Means::HubModel(_) | Means::Interactive | Means::Escapes(_) => false,
    });
    aliased || known(cli, command, name) == Some(true)
}

/// What was taken from a command line.
#[derive(Default)]
struct Taken {
    /// Names that cannot matter, in order.
    idle: Vec<String>,
    /// Names with an index into [`INSTEAD`].
    instead: Vec<(usize, String)>,
    /// The file of the base, and the name of the option.
    base: Option<(String, OsString)>,
    /// Whether the base is compared with, and not written.
    compares: bool,
}

impl Taken {
    /// Takes an option, if it is one of these. `value` returns its value.
    fn option(
        &mut self,
        name: &str,
        value: &mut dyn FnMut(Takes) -> Option<OsString>,
    ) -> Result<bool, Refused> {
        let refused = |why, hint| Err(Refused { spelling: name.to_owned(), refusal: Refusal { why, hint } });
        match name {
            "--kl-divergence" => self.compares = true,
            "--kl-divergence-base" | "--save-all-logits" => {
                self.base = value(Value).map(|path| (name.to_owned(), path));
            }
            "-fa" | "--flash-attn" => {
                // A switch in older releases.
                if value(OneOf(ON_OFF)).is_some_and(|value| value == "off" || value == "0") {
                    return refused(
                        "attention is always fused, and the memory estimates rely on that",
                        "leave it out",
                    );
                }
            }
            "--split-mode" | "-sm" => match value(OneOf(&["graph", "attn"])) {
                Some(_) => self.instead_of("-smgs", &format!("{name} graph")),
                None => return Ok(false),
            },
            "--ppl-stride" | "--ppl-output-type" => {
                if value(Value).is_none_or(|value| value != "0") {
                    return refused(
                        "chunks are evaluated side by side, without a stride",
                        "leave it out, or use 0",
                    );
                }
            }
            "--winogrande" | "--multiple-choice" => {
                return refused("this task is not supported", "use --hellaswag, --kl-divergence or a text");
            }
            name if IDLE_SWITCHES.contains(&name) => self.idle.push(name.to_owned()),
            name if IDLE_VALUES.contains(&name) => {
                value(Value);
                self.idle.push(name.to_owned());
            }
            name => {
                let found =
                    INSTEAD.iter().flat_map(|instead| instead.names).find(|(known, _)| *known == name);
                let Some((_, takes)) = found else { return Ok(false) };
                value(*takes);
                self.instead_of(name, name);
            }
        }
        Ok(true)
    }

    /// Notes `written`, which is like the option `name`.
    fn instead_of(&mut self, name: &str, written: &str) {
        let has = |instead: &Instead| instead.names.iter().any(|(known, _)| *known == name);
        let index = INSTEAD.iter().position(has).expect("a name of the table");
        self.instead.push((index, written.to_owned()));
    }

    /// Terrace's words for the base of logits.
    fn base(&mut self) -> Result<Option<OsString>, Refused> {
        let word = |option: &str, path: OsString| {
            let mut word = OsString::from(option);
            word.push("=");
            word.push(path);
            word
        };
        match (self.base.take(), self.compares) {
            (Some((_, path)), true) => Ok(Some(word("--kld", path))),
            (Some((_, path)), false) => Ok(Some(word("--save-logits", path))),
            (None, false) => Ok(None),
            (None, true) => Err(Refused {
                spelling: "--kl-divergence".into(),
                refusal: Refusal {
                    why: "it needs the file of the base",
                    hint: "add --kl-divergence-base FILE, or use --kld FILE",
                },
            }),
        }
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.idle.is_empty() {
            warnings.push(format!("ignored, since no measurement depends on it: {}", self.idle.join(" ")));
        }
        let mut instead = Vec::new();
        for (index, kind) in INSTEAD.iter().enumerate() {
            let names: Vec<&str> =
                self.instead.iter().filter(|(of, _)| *of == index).map(|(_, name)| name.as_str()).collect();
            if !names.is_empty() {
                instead.push(format!("{}: {}", names.join(" "), kind.does));
            }
        }
        if !instead.is_empty() {
            warnings.push(format!("Terrace has its own way for {}", instead.join("; ")));
        }
        warnings
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    fn taken(line: &str) -> Result<(String, Vec<String>), Refused> {
        let words = line.split_whitespace().map(OsString::from).collect();
        let (words, warnings) = take(&Cli::command(), words)?;
        let words: Vec<String> = words.into_iter().map(|word| word.into_string().unwrap()).collect();
        Ok((words.join(" "), warnings))
    }

    #[test]
    fn what_cannot_matter_is_listed_in_one_warning() {
        let (words, warnings) = taken(
            "terrace perplexity -m a.gguf --alias x --temp 0.0 --top-k 0 --host 0.0.0.0 --metrics --keep -1 \
             --special --log-enable --logdir /var/log --prompt-cache p --slot-save-path=s -f t.txt --seed 1337",
        )
        .unwrap();
        assert_eq!(words, "terrace perplexity -m a.gguf -f t.txt");
        assert_eq!(
            warnings,
            ["ignored, since no measurement depends on it: --alias --temp --top-k --host --metrics --keep \
              --special --log-enable --logdir --prompt-cache --slot-save-path --seed"]
        );
    }

    #[test]
    fn options_of_the_fork_are_named_with_what_terrace_does() {
        let (words, warnings) = taken(
            "terrace perplexity m.gguf -mla 3 -fa -amb 1024 -fmoe -rtr -ser 6,1 -wgt 1 -mea 128 -cuda fusion=1 \
             -gr -khad -mqkv -muge -sas --split-mode graph --offload-policy -1,off --fit --gpu-fit-margin 0,1 \
             --mlock -c 512",
        )
        .unwrap();
        assert_eq!(words, "terrace perplexity m.gguf -c 512");
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        for part in [
            "-mla -amb: graphs are llama.cpp's",
            "-fmoe: blocks of experts",
            "-rtr: weights keep",
            "-ser: all experts",
            "-wgt -mea -gr -sas: llama.cpp",
            "-cuda: the CUDA",
            "-khad: keys",
            "-mqkv -muge: weights stay apart",
            "--split-mode graph: layers",
            "--offload-policy: measured",
            "--fit --gpu-fit-margin: the plan",
            "--mlock: weights",
        ] {
            assert!(warnings[0].contains(part), "{part}: {}", warnings[0]);
        }
    }

    #[test]
    fn a_base_is_written_or_compared_with() {
        let words = |line: &str| taken(line).map(|(words, _)| words);
        let base = "terrace perplexity m --kl-divergence-base b";
        assert_eq!(words(base).unwrap(), "terrace perplexity m --save-logits=b");
        assert_eq!(
            words("terrace perplexity --save-all-logits=b m").unwrap(),
            "terrace perplexity m --save-logits=b"
        );
        assert_eq!(words(&format!("{base} --kl-divergence")).unwrap(), "terrace perplexity m --kld=b");
        assert!(words("terrace perplexity m --kl-divergence").unwrap_err().refusal.hint.contains("--kld"));
        assert!(words("terrace perplexity m --ppl-stride 64").is_err());
        assert!(words("terrace perplexity m --winogrande").is_err());
        assert_eq!(
            words("terrace perplexity m --ppl-stride 0 -sm layer").unwrap(),
            "terrace perplexity m -sm layer"
        );
    }

    #[test]
    fn values_and_other_commands_stay() {
        for line in [
            "terrace run m -mla 3 --temp 0",
            "terrace --config perplexity run --metrics",
            "terrace perplexity m -f --metrics",
            "terrace perplexity m -c --seed -ub -mla",
            "terrace perplexity -- --metrics",
        ] {
            assert_eq!(taken(line).unwrap(), (line.to_owned(), Vec::new()), "{line}");
        }
        assert_eq!(taken("/opt/llama-perplexity -m a").unwrap().0, "/opt/llama-perplexity perplexity -m a");
    }

    #[test]
    fn each_name_is_in_one_table_once_and_none_is_terraces_own() {
        let cli = Cli::command();
        let command = cli.find_subcommand("perplexity").unwrap();
        let instead = INSTEAD.iter().flat_map(|instead| instead.names).map(|(name, _)| *name);
        let mut names: Vec<&str> = IDLE_SWITCHES.iter().chain(IDLE_VALUES).copied().chain(instead).collect();
        for name in &names {
            let own = command.get_arguments().any(|arg| {
                arg.get_long().is_some_and(|long| *name == format!("--{long}"))
                    || arg.get_short().is_some_and(|short| *name == format!("-{short}"))
            });
            assert!(!own, "{name}");
        }
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
