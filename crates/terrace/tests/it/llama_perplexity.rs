//! Command lines of llama-perplexity, llama.cpp's and ik_llama.cpp's, in `terrace perplexity`.

use crate::common::{bundled, command, failure, json, run, stderr, stdout};
use std::path::Path;
use tempfile::TempDir;

/// The lines of warnings that the command line causes.
fn warnings(told: &str) -> Vec<&str> {
    told.lines().filter(|line| line.starts_with("warning: ")).collect()
}

fn words(line: &str) -> Vec<String> {
    let (model, text) = (bundled(), bundled().with_file_name("sample.kjv.txt"));
    let all = format!("-m {} -f {} -c 128 --chunks 2 {line}", model.display(), text.display());
    all.split_whitespace().map(str::to_owned).collect()
}

/// The command lines of the documentation of ik_llama.cpp's reloads and of the benchmark of GGUF-Tool-Suite.
#[test]
fn scripts_of_others_run_as_they_are() {
    let plain = run(["perplexity".to_owned()].into_iter().chain(words("")));
    let figure = stdout(&plain).to_owned();
    assert!(figure.ends_with('\n') && figure.contains("Final estimate: PPL = "), "{}", stderr(&plain));
    assert!(warnings(&stderr(&plain)).is_empty(), "{}", stderr(&plain));
    for (line, lines, named) in [
        (
            "--alias x --fit --fit-margin 4200 --gpu-fit-margin 0,4400,12,4400 --temp 0.0 --top-k 0 --top-p 1.0 \
             -ctk f16 -ctv f16 -amb 128 -mea 128 -wgt 1 --mlock --split-mode layer --graph-reduce-type f16 \
             --threads 1 -sas --gpu-layers 99 --no-offload-only-active-experts --host 0.0.0.0 --port 8080 \
             --log-enable --logdir /var/log/ --jinja --special --prompt-cache p.bin --prompt-cache-all \
             --slot-save-path s.bin --lookup-cache-dynamic s.bin --keep -1 --slot-prompt-similarity 0.35 \
             --metrics -cuda fusion=1",
            2,
            &["--alias", "--temp", "--mlock", "-amb", "-cuda", "--metrics"][..],
        ),
        (
            "-mla 3 -fa on -amb 1024 -ctk f16 -ngl 99 -ot blk\\.(3|4|5)\\.ffn_.*=CUDA0 -ot exps=CPU -b 512 -ub 512 \
             --warmup-batch --no-mmap --threads 1 --main-gpu 0 --seed 1337",
            2,
            &["-mla", "--warmup-batch", "--seed", "--main-gpu"][..],
        ),
        (
            "-mla 3 -fmoe -rtr -ser 6,1 -gr -khad -mqkv -muge --split-mode graph --offload-policy -1,off",
            1,
            &["-khad"],
        ),
    ] {
        let output = run(["perplexity".to_owned()].into_iter().chain(words(line)));
        assert!(output.status.success(), "{line}: {}", stderr(&output));
        let told = stderr(&output);
        assert_eq!(warnings(&told).len(), lines, "{told}");
        for name in named {
            let has = |line: &&str| line.split([' ', ':', ',']).any(|word| word == *name);
            assert_eq!(warnings(&told).into_iter().filter(has).count(), 1, "{name}: {told}");
        }
        // What was left out changes nothing.
        assert_eq!(stdout(&output), figure, "{line}");
    }
}

#[test]
fn what_would_change_the_figure_is_refused() {
    for (line, expected) in [
        ("--ppl-stride 256", "stride"),
        ("--winogrande", "not supported"),
        ("-fa off", "fused"),
        ("--kl-divergence", "base"),
        ("--rope-freq-base 10000", "positions"),
        ("-ambition 3", "unexpected argument"),
    ] {
        let error = failure(&run(["perplexity".to_owned()].into_iter().chain(words(line))), 2);
        assert!(error.contains(expected), "{line}: {error}");
    }
}

#[test]
fn a_base_is_written_and_compared_with_under_their_names() {
    let dir = TempDir::new().unwrap();
    let base = dir.path().join("base.kld");
    let with = |more: &str| {
        let line = format!("--json --kl-divergence-base {} {more}", base.display());
        json(&run(["perplexity".to_owned()].into_iter().chain(words(&line))))
    };
    assert_eq!(with("")["logits"], base.to_str().unwrap());
    let compared = with("--kl-divergence");
    assert!(compared["kld"]["value"].as_f64().unwrap().abs() < 1e-5, "{compared}");
    // At most as many chunks as the base has.
    let line = format!("--json --kl-divergence-base {} --kl-divergence", base.display());
    let more = words(&line).into_iter().map(|word| if word == "2" { "250".to_owned() } else { word });
    assert_eq!(json(&run(["perplexity".to_owned()].into_iter().chain(more)))["chunks"], 2);
}

/// Threads beyond the processors only wait.
#[test]
fn threads_are_as_many_as_processors_at_most() {
    let output = run(["perplexity".to_owned()].into_iter().chain(words("--threads 1000")));
    assert!(output.status.success(), "{}", stderr(&output));
    let processors = std::thread::available_parallelism().unwrap();
    let warning = format!("{processors} threads instead of 1000");
    assert!(stderr(&output).contains(&warning), "{}", stderr(&output));
}

#[test]
fn types_of_the_fork_are_refused() {
    let model = bundled();
    for rules in ["ffn=iq4_k", "ffn=iq1_kt", "ffn=q8_k_r8"] {
        let args = ["quantize", model.to_str().unwrap(), "--dry-run", "--custom-q", rules];
        assert!(failure(&run(args), 2).contains("is not a type"), "{rules}");
    }
}

/// A script needs the path of the program, and nothing else.
#[test]
fn the_name_of_the_program_is_enough() {
    let dir = TempDir::new().unwrap();
    let link = dir.path().join("llama-perplexity");
    std::os::unix::fs::symlink(Path::new(env!("CARGO_BIN_EXE_terrace")), &link).unwrap();
    let output = command(&link).args(words("")).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("Final estimate: PPL = "), "{}", stdout(&output));
}
