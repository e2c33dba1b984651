//! The tables of the pages "Coming from ...": each row is a command line that is started here, or names the test
//! that it is. Rows that the pages have and this list has not, or the other way round, fail.

use crate::common::{bundled, command, stderr, stdout};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use tempfile::TempDir;
use terrace_model::ByteSize;
use terrace_testkit::rpc::RpcServer;

/// The test of a row.
enum Row {
    /// The program ends well with these words, and prints all of these texts. `M` is a model, `T` a text, `D` a
    /// directory, and `R` a device's server.
    Runs(&'static str, &'static [&'static str]),
    /// It ends with an error, and prints all of these texts.
    Refuses(&'static str, &'static [&'static str]),
    /// A function of a file, from the root of the project.
    Test(&'static str, &'static str),
    /// A script of `make test-origins`.
    Origin(&'static str),
}

use Row::{Origin, Refuses, Runs, Test};

const DRIVEN: &str = "crates/terrace/tests/it/driven_loop.rs";
const LOOP: &str = "crates/terrace/tests/it/reload_loop.rs";
const LLAMA: &str = "crates/terrace/tests/it/llama_perplexity.rs";
const DERIVED: &str = "crates/terrace/tests/it/reload_derived.rs";
const QUANTIZE: &str = "crates/terrace/tests/it/quantize.rs";
const START: &str = "crates/terrace/tests/it/hot_cache_script.rs";
const HOT: &str = "crates/terrace/tests/it/hot_experts.rs";
const REWRITE: &str = "crates/terrace/src/config/rewrite/tests.rs";
const ENVIRONMENT: &str = "crates/terrace/src/config/hot_cache_env.rs";
const EXPERTS: &str = "crates/terrace/tests/it/serve_experts.rs";

const PAGES: [(&str, &[(&str, Row)]); 3] = [
    (
        "coming-from-ik-llama.md",
        &[
            ("`LLAMA_HOTSWAP_ENABLED=1 llama-perplexity ...`", Test(LOOP, "measured_until_nothing_changes")),
            (
                "`LLAMA_PERPLEXITY_PRE_RELOAD_SCRIPT=\"bash ../x.sh --arg\"`",
                Test(LOOP, "how_a_script_ends_does_not_matter"),
            ),
            (
                "`LLAMA_HOTSWAP_CONTROL_FILE`, `LLAMA_HOTSWAP_STATUS_FILE`",
                Test(DRIVEN, "a_control_file_needs_a_status_file_and_a_loop"),
            ),
            (
                "`reload SEQ`, `compute SEQ`, `exit SEQ` (`quit`, `stop`)",
                Test(DRIVEN, "commands_are_taken_in_order_and_states_tell_their_ends"),
            ),
            ("`reloaded tensor 'NAME'`", Test(LOOP, "measured_until_nothing_changes")),
            (
                "`hotswap: tensor 'NAME' cannot be hot-swapped: REASON`",
                Test(DRIVEN, "a_bad_file_is_refused_by_name_and_the_others_are_taken"),
            ),
            (
                "`model has unused tensor NAME (size = N bytes)`",
                Test(DERIVED, "heads_that_only_drafts_use_are_named"),
            ),
            (
                "`failed to refresh derived tensor`",
                Test(DERIVED, "a_table_that_is_the_head_too_is_replaced_in_both_places"),
            ),
            ("mapped tensors are refused without `--no-mmap`", Test(LOOP, "measured_until_nothing_changes")),
            (
                "`-khad`, `-mqkv`, `-muge`, `-rtr` make tensors irreplaceable",
                Test(DERIVED, "repacked_weights_are_refused_by_name"),
            ),
            (
                "a tensor too large for its device moves to the CPU",
                Test(
                    "crates/terrace-engine/tests/it/reload_devices.rs",
                    "what_a_full_device_cannot_hold_is_in_main_memory",
                ),
            ),
            (
                "`GET /health` of the server reloads",
                Test("crates/terrace/tests/it/serve_reload.rs", "health_reloads_only_where_it_is_told_to"),
            ),
            (
                "`llama-perplexity -m M -f T -c 512 --chunks 100`",
                Runs("perplexity -m M -f T -c 128 --chunks 2", &["Final estimate: PPL = "]),
            ),
            (
                "`[1]5.1,[2]4.9,...` in one line",
                Runs("perplexity M -f T -c 128 --chunks 2", &["[1]", ",[2]"]),
            ),
            (
                "`--kl-divergence-base F`",
                Runs("perplexity M -f T -c 128 --chunks 2 --kl-divergence-base D/base", &["Final estimate"]),
            ),
            (
                "`--kl-divergence-base F --kl-divergence`",
                Runs(
                    "perplexity M -c 128 --chunks 2 --kl-divergence-base D/base --kl-divergence",
                    &["KL divergence statistics"],
                ),
            ),
            (
                "`--hellaswag`",
                Test("crates/terrace/tests/it/perplexity.rs", "tasks_are_solved_and_bad_ones_refused"),
            ),
            (
                "`--winogrande`, `--multiple-choice`, `--ppl-stride`",
                Refuses("perplexity M -f T --winogrande", &["--winogrande: this task is not supported"]),
            ),
            (
                "options of sampling, of the server, of logs",
                Runs(
                    "perplexity M -f T -c 128 --chunks 1 --temp 0 --host x --logdir /var/log",
                    &["warning: ignored, since no measurement depends on it: --temp --host --logdir"],
                ),
            ),
            (
                "`-mla -amb -fmoe -ser -wgt -mea -cuda -gr -sas`, `--split-mode graph`, `--offload-policy`, \
                 `--gpu-fit-margin`",
                Test(LLAMA, "scripts_of_others_run_as_they_are"),
            ),
            (
                "`--mlock`",
                Runs(
                    "perplexity M -f T -c 128 --chunks 1 --mlock",
                    &["warning: ignored: --mlock (memory is given back"],
                ),
            ),
            (
                "`-ngl 99`, `-ot X=CUDA0` without such a device",
                Runs(
                    "perplexity M -f T -c 128 --chunks 1 -ngl 99 -ot ffn=CUDA0",
                    &["an --override-tensor rule is left out: there is no device CUDA0"],
                ),
            ),
            ("`--threads 36` on 8 cores", Test(LLAMA, "threads_are_as_many_as_processors_at_most")),
            ("`iq4_k`, `iq1_kt` and other types of the fork", Test(LLAMA, "types_of_the_fork_are_refused")),
            ("a script that swaps shards", Test(LOOP, "ready_made_tensors_are_tried_one_after_the_other")),
            (
                "`llama-quantize --custom-q \"regex=type,...\"`",
                Runs(
                    "quantize M D/q.gguf --type Q4_K_M --allow-requantize --custom-q output\\.weight=q6_K",
                    &["q6_K"],
                ),
            ),
            ("a recipe of `quant_assign.py`", Test(QUANTIZE, "recipes_of_others_are_read_as_they_are")),
            (
                "`llama-gguf-split`, one tensor per file",
                Runs("quantize M D/split --split-tensors", &["21.65 MiB"]),
            ),
            (
                "hand-made tables of costs",
                Test(
                    "crates/terrace/tests/it/sweep.rs",
                    "a_sweep_finds_a_mix_and_its_model_is_what_was_measured",
                ),
            ),
        ],
    ),
    (
        "coming-from-moe-hot-cache.md",
        &[
            (
                "`--cpu-moe --n-gpu-layers 99 --device CUDA0 --split-mode none --main-gpu 0`",
                Runs(
                    "run M -p x -n 1 --rpc R --cpu-moe --n-gpu-layers 99 --device RPC0 --split-mode none --main-gpu 0",
                    &["--split-mode (--device DEVICE uses one accelerator alone)", "--main-gpu ("],
                ),
            ),
            (
                "`--moe-layer-perf-out F`",
                Runs("run M -p x -n 2 --cpu-moe --moe-layer-perf-out D/learned.json", &[]),
            ),
            ("`--moe-hot-cache F`", Runs("run M -p x -n 1 --moe-hot-cache D/learned.json", &[])),
            (
                "`--moe-hot-cache-max-mib N`",
                Runs("run M -p x -n 1 -v --rpc R -ngl 99 --cpu-moe --moe-hot-cache-max-mib 2", &["RPC0"]),
            ),
            ("`--moe-hot-cache-auto-reserve-mib N`", Test(HOT, "a_reserve_makes_fewer_copies_or_none")),
            (
                "`--moe-hot-cache-second-device D --moe-hot-cache-second-max-mib N`",
                Test(HOT, "devices_of_lanes_join_for_copies_alone"),
            ),
            ("`--moe-hot-cache-device-strategy warm`", Test(HOT, "devices_of_lanes_join_for_copies_alone")),
            (
                "`--moe-hot-cache-weighting time --moe-hot-cache-layer-curve 0.5`",
                Runs(
                    "run M -p x -n 1 --rpc R -ngl 99 --cpu-moe --moe-hot-cache-max-mib 2 --moe-hot-cache D/learned.json \
                     --moe-hot-cache-weighting time --moe-hot-cache-layer-curve 0.5",
                    &[],
                ),
            ),
            (
                "`--moe-hot-cache-update-rate 0.25`",
                Runs(
                    "run M -p x -n 1 --moe-hot-cache-update-rate 0.25",
                    &["ignored: --moe-hot-cache-update-rate (copies are exchanged between tokens"],
                ),
            ),
            (
                "`--moe-hot-cache-pp-reduce-merge on`, `--moe-hot-cache-pp-dense-min-tokens N`, \
                 `--moe-hot-cache-pp-min-hot-expert-ratio F`",
                Test(START, "start_scripts_start"),
            ),
            ("`--log-tg-progress`", Test(START, "start_scripts_start")),
            (
                "`--moe-hot-cache-warmup-prompt TEXT`",
                Runs("run M -p x -n 1 --moe-hot-cache-warmup-prompt hello", &[]),
            ),
            ("`--auto-learn`", Test(START, "start_scripts_start")),
            ("`--no-perf`", Test(START, "start_scripts_start")),
            (
                "`LLAMA_ARG_MOE_HOT_CACHE=F` and the variables of its other options",
                Test(ENVIRONMENT, "variables_mean_what_their_options_mean"),
            ),
            (
                "`LLAMA_MOE_HOT_CACHE_PARALLEL=force`",
                Test(ENVIRONMENT, "each_variable_does_something_or_is_reported"),
            ),
            (
                "`LLAMA_MOE_HOT_CACHE_MERGE_SUM_ROWS=1` and other switches of its graphs",
                Test(START, "start_scripts_start"),
            ),
            (
                "`GET /moe-layer-perf`",
                Test("crates/terrace-model/src/learn/tests.rs", "readers_of_the_original_find_all_keys"),
            ),
            (
                "`POST /moe-layer-perf` with `{\"mode\": \"full\"}`, `update` or `off`",
                Test(EXPERTS, "uses_are_reported_as_by_the_original"),
            ),
            ("`POST /moe-hot-cache`", Test(EXPERTS, "what_was_learnt_is_applied")),
            ("`\"save_to_disk\": true`", Test(START, "start_scripts_start")),
            ("`GET /moe-hot-cache`", Test(EXPERTS, "other_sites_and_clients_without_a_key_apply_nothing")),
            ("its page `#/moe-layer-perf`", Origin("moe-hot-cache")),
        ],
    ),
    (
        "coming-from-hypura.md",
        &[
            (
                "`profile`",
                Test(
                    "crates/terrace/tests/it/machine_profile.rs",
                    "what_is_measured_is_kept_and_used_until_it_is_stale",
                ),
            ),
            ("`profile --force`", Test(REWRITE, "each_spelling_is_what_ours_is")),
            ("`estimate M`", Runs("estimate M", &["time per token"])),
            ("`inspect M`", Runs("inspect M", &["experts          32 per layer"])),
            (
                "`inspect M --tensors`",
                Runs("inspect M --tensors", &["blk.0.ffn_down_exps.weight", "256 x 256 x 32"]),
            ),
            (
                "`run M --prompt P --max-tokens 4 --context 256`",
                Runs("run M --prompt x --max-tokens 4 --context 256 --temp 0 --json", &["\"prompt_tokens\""]),
            ),
            ("`run M --interactive`", Test(REWRITE, "each_spelling_is_what_ours_is")),
            ("`serve M --host H --port N --context 256`", Test(REWRITE, "each_spelling_is_what_ours_is")),
            (
                "`bench M --max-tokens 4 --context 256 --prompt P`",
                Runs("bench M --max-tokens 4 --context 256 --prompt x -r 1", &["4 generated"]),
            ),
            (
                "`bench M --baseline`",
                Test("crates/terrace/tests/it/bench_baselines.rs", "stocks_best_splits_are_found"),
            ),
            (
                "`bench M --baseline --force`",
                Runs(
                    "bench M --baseline=cpu --force -n 2 -r 1",
                    &["ignored: --force (the baseline may be larger"],
                ),
            ),
            (
                "`iobench M --read-gb 1.0`",
                Runs("iobench M --read-gb 1.0 --seconds 1 --json", &["ignored: --read-gb (--seconds"]),
            ),
            (
                "`optimize M`",
                Test("crates/terrace/tests/it/optimize.rs", "what_is_found_is_kept_and_later_runs_take_it"),
            ),
            (
                "`--layer-skip`",
                Test("crates/terrace/tests/it/layer_skip.rs", "the_last_calibration_is_the_models_own"),
            ),
            ("`HYPURA_LOG=debug`", Runs("run M -p x -n 1 -v", &["tokens/s"])),
            (
                "`GET /api/tags`, `POST /api/generate`, `POST /api/chat`, `POST /api/show`, `GET /api/version`",
                Test("crates/terrace/tests/it/serve.rs", "it_says_what_it_is"),
            ),
            (
                "traces of loads and stalls per token",
                Test("crates/terrace/tests/it/timeline.rs", "bench_says_where_the_time_goes"),
            ),
            (
                "time between \"layer N is loaded\" and \"N+1 is submitted\"",
                Test("crates/terrace/tests/it/timeline.rs", "bench_says_where_the_time_goes"),
            ),
            (
                "pool slots x lookahead, by hand",
                Test("crates/terrace/tests/it/optimize.rs", "a_curve_says_where_it_is_flat"),
            ),
        ],
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The first cells of the rows of all tables, without their heads.
fn rows(page: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join("docs/guide").join(page)).unwrap();
    let cell = |line: &str| Some(line.strip_prefix("| ")?.split(" | ").next()?.to_owned());
    let is_row = |cell: &String| cell != "there";
    text.lines().filter_map(cell).filter(is_row).collect()
}

#[test]
fn each_row_is_tested() {
    for (page, tests) in PAGES {
        let names: Vec<&str> = tests.iter().map(|(row, _)| *row).collect();
        assert_eq!(rows(page), names, "{page}");
        for (row, test) in tests {
            match test {
                Test(file, function) => {
                    let text = fs::read_to_string(root().join(file));
                    let text = text.unwrap_or_else(|error| panic!("{page}: {row}: {file}: {error}"));
                    assert!(
                        text.contains(&format!("fn {function}")),
                        "{page}: {row}: {file} has no {function}"
                    );
                }
                Origin(name) => assert!(root().join("scripts/origins").join(name).exists(), "{page}: {row}"),
                Runs(..) | Refuses(..) => {}
            }
        }
    }
    let pages = fs::read_dir(root().join("docs/guide")).unwrap();
    let pages = pages.map(|page| page.unwrap().file_name().into_string().unwrap());
    let mut pages: Vec<String> = pages.filter(|page| page.starts_with("coming-from-")).collect();
    pages.sort();
    let mut known = PAGES.map(|(page, _)| page.to_owned());
    known.sort();
    assert_eq!(pages, known);
}

/// Starts each row's command line, in the order of the page: later ones read what earlier ones have written.
#[test]
fn command_lines_of_others_run() {
    let device = RpcServer::start(ByteSize::mib(64)).unwrap();
    let dir = TempDir::new().unwrap();
    let (model, text) = (bundled(), bundled().with_file_name("sample.kjv.txt"));
    let word = |word: &str| {
        let place = dir.path().to_str().unwrap();
        match word {
            "M" => model.display().to_string(),
            "T" => text.display().to_string(),
            "R" => device.endpoint().to_owned(),
            word => word.strip_prefix("D/").map_or_else(|| word.to_owned(), |name| format!("{place}/{name}")),
        }
    };
    let start = |line: &str| -> Output {
        let mut command = command(Path::new(env!("CARGO_BIN_EXE_terrace")));
        command.env("XDG_CONFIG_HOME", dir.path()).args(line.split_whitespace().map(word)).output().unwrap()
    };
    for (page, tests) in PAGES {
        for (row, test) in tests {
            let (line, texts, ends_well) = match test {
                Runs(line, texts) => (line, texts, true),
                Refuses(line, texts) => (line, texts, false),
                Test(..) | Origin(_) => continue,
            };
            let output = start(line);
            let told = format!("{}{}", stdout(&output), stderr(&output));
            assert_eq!(output.status.success(), ends_well, "{page}: {row}: {line}: {told}");
            for text in *texts {
                assert!(told.contains(text), "{page}: {row}: {line}: `{text}` is not in\n{told}");
            }
        }
    }
}
