use super::super::removed::{REMOVED, Removed};
use super::*;
use crate::cli::Cli;
use clap::{CommandFactory, Parser};

fn rewritten(line: &str) -> Result<Vec<String>, Refused> {
    let words = line.split_whitespace().map(OsString::from).collect();
    let out = rewrite(&Cli::command(), words)?.words;
    Ok(out.into_iter().map(|word| word.into_string().unwrap()).collect())
}

/// clap's reading of a command line; the line's words for child processes aside.
fn parsed(line: &str) -> String {
    let words = rewritten(line).unwrap_or_else(|refused| panic!("{line}: {refused:?}"));
    format!("{:?}", Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}")))
}

#[test]
fn options_of_ik_llama_are_named_with_what_terrace_does() {
    let line = "terrace perplexity m.gguf -mla 3 -amb 1024 -fmoe -rtr -ser 6,1 -wgt 1 -mea 128 -cuda fusion=1 -gr \
                -khad -mqkv -muge -sas --split-mode graph --offload-policy -1,off --gpu-fit-margin 0,1 -c 512";
    let words = |line: &str| line.split_whitespace().map(OsString::from).collect();
    let rewritten = rewrite(&Cli::command(), words(line)).unwrap();
    assert_eq!(rewritten.words, words("terrace perplexity m.gguf --ctx=512"));
    let note = |name: &str| rewritten.ignored.iter().find(|(known, _)| known == name).map(|(_, note)| *note);
    for (name, begin) in [
        ("-mla", "graphs are llama.cpp's"),
        ("-fmoe", "blocks of experts"),
        ("-rtr", "weights keep"),
        ("-ser", "all experts"),
        ("-sas", "llama.cpp"),
        ("-cuda", "the CUDA"),
        ("-khad", "keys"),
        ("-muge", "weights stay apart"),
        ("--split-mode", "layers"),
        ("--offload-policy", "measured"),
        ("--gpu-fit-margin", "the plan"),
    ] {
        assert!(note(name).is_some_and(|note| note.starts_with(begin)), "{name}: {:?}", note(name));
    }
    // Of other commands, it would change the text.
    let refused = rewrite(&Cli::command(), words("terrace run m.gguf -ser 6,1")).unwrap_err();
    assert!(refused.refusal.hint.contains("--lossy"), "{refused:?}");
}

#[test]
fn each_spelling_is_what_ours_is() {
    for (theirs, ours) in [
        ("chat a.gguf", "run --chat a.gguf"),
        ("ls", "list"),
        ("run -m a.gguf", "run a.gguf"),
        ("run --model=a.gguf -v", "run a.gguf -v"),
        ("run -m -a.gguf", "run ./-a.gguf"),
        ("run -m hf:x", "run ./hf:x"),
        ("run -hf a/b", "run hf:a/b"),
        ("run -hf a/b:c.gguf", "run hf:a/b:c.gguf"),
        ("run -hff c.gguf --hf-repo a/b:Q4_0", "run hf:a/b:c.gguf"),
        ("run -c 512 -b 64 -ub 32", "run --ctx 512 --batch 64 --ubatch 32"),
        ("run --ctx-size=512 --batch-size 64 --ubatch-size 32", "run --ctx 512 --batch 64 --ubatch 32"),
        ("run -ctk q8_0 -ctv q4_0", "run --cache-type-k q8_0 --cache-type-v q4_0"),
        ("run -nkvo", "run --kv-offload off"),
        ("run --no-kv-offload", "run --kv-offload off"),
        ("run -kvo", "run --kv-offload on"),
        ("run --no-op-offload", "run --op-offload off"),
        ("run -fa on --flash-attn auto", "run"),
        ("run --no-context-shift --no-warmup --jinja -nr", "run"),
        ("run -ngl 5 -sm tensor", "run --n-gpu-layers 5 --split-mode tensor"),
        ("run -ngl=5", "run --n-gpu-layers 5"),
        ("run -ngl all", "run --n-gpu-layers 9999"),
        ("run -hf a/b:Q4_K_M", "run hf:a/b:Q4_K_M"),
        ("run -r x --reverse-prompt y", "run --stop x --stop y"),
        ("run -sys hello", "run --chat --system hello"),
        ("run -t -1 -cram -1", "run"),
        ("run --gpu-layers auto", "run"),
        ("run --n-gpu-layers -1", "run"),
        ("run -ot a=CPU,b=disk", "run --override-tensor=a=host --override-tensor=b=disk"),
        ("run --override-tensor x{1,2}=RPC0", "run --override-tensor=x{1,2}=RPC0"),
        ("run -cmoe", "run --cpu-moe"),
        ("run --moe-hot-cache-max-mib -1", "run --hot-cache max"),
        ("run --moe-hot-cache-max-mib 0", "run --hot-cache off"),
        ("run --moe-hot-cache-max-mib=512", "run --hot-cache 512MiB"),
        ("run --moe-hot-cache-auto-reserve-mib 64", "run"),
        ("run --moe-hot-cache-max-mib -1 --moe-hot-cache-auto-reserve-mib 64", "run --hot-cache max-64MiB"),
        ("run --moe-hot-cache-weighting smooth", "run --hot-weighting smooth_pressure"),
        ("run --moe-hot-cache-device-strategy even-split", "run --hot-split off"),
        ("run --moe-hot-cache-device-strategy hot-even", "run --hot-split even"),
        ("run --moe-hot-cache-device-strategy=warm", "run --hot-split warm"),
        ("run --moe-hot-cache a.json --moe-layer-perf-out b.json", "run --learned a.json --learn-to b.json"),
        // What clients may save is this file.
        ("serve --moe-hot-cache a.json --auto-learn", "serve --auto-learn --learn-dir . --learned a.json"),
        ("serve --moe-hot-cache a.json --learn-dir src", "serve --learned a.json --learn-dir src"),
        ("serve --moe-hot-cache gone/a.json", "serve --learned gone/a.json"),
        ("serve --no-perf", "serve --learn-mode off"),
        ("serve --no-perf --moe-layer-perf-out a.json", "serve --learn-to a.json"),
        ("serve --no-perf --learn-mode update", "serve --learn-mode update"),
        ("serve --moe-hot-cache-warmup-prompt hello", "serve --warmup-prompt hello"),
        ("run --moe-hot-cache-update-rate 0.0", "run --hot-update off"),
        ("run --moe-hot-cache-pp-reduce-merge off --no-log-tg-progress", "run"),
        (
            "run --moe-hot-cache-device CUDA1 --moe-hot-cache-max-mib 512 --moe-hot-cache-auto-reserve-mib 9",
            "run --hot-cache CUDA1=512MiB --hot-cache off",
        ),
        (
            "run --moe-hot-cache-device CUDA1 --moe-hot-cache-max-mib -1 --moe-hot-cache-auto-reserve-mib 9",
            "run --hot-cache CUDA1=max-9MiB --hot-cache off",
        ),
        // A lane's device is there for copies alone.
        (
            "run -dev CUDA0 --moe-hot-cache-max-mib 3 --moe-hot-cache-device CUDA0 \
             --moe-hot-cache-second-device CUDA1 --moe-hot-cache-second-max-mib 5",
            "run --device CUDA0 --device CUDA1 --vram-budget CUDA1=0 --hot-cache CUDA0=3MiB \
             --hot-cache CUDA1=5MiB --hot-cache off",
        ),
        (
            "run --moe-hot-cache-second-device RPC[a:1] --moe-hot-cache-second-max-mib -1 \
             --moe-hot-cache-max-mib 64 --moe-hot-cache-third-max-mib 0",
            "run --hot-cache RPC[a:1]=max --hot-cache 64MiB",
        ),
        (
            "run --moe-hot-cache-lane RPC[a:1]:64 --moe-hot-cache-lane CUDA0:-1",
            "run --hot-cache RPC[a:1]=64MiB --hot-cache CUDA0=max --hot-cache off",
        ),
        ("run --moe-hot-cache-layer-curve 1", "run --hot-layer-curve 1"),
        ("run -ncmoe 2", "run --n-cpu-moe 2"),
        ("run -dev RPC0,RPC1", "run --device RPC0 --device RPC1"),
        ("run --no-mmap", "run --mmap=off"),
        ("run --mmap", "run --mmap=on"),
        ("run -tb 3 -t 2", "run --threads-batch 3 --threads 2"),
        ("run --predict 5", "run -n 5"),
        ("run --n-predict -1", "run"),
        ("run -n -2", "run"),
        ("run -s 7 --temperature 0.5", "run --seed 7 --temp 0.5"),
        ("run -s -1", "run"),
        ("run --sampling-seq kt --typical-p 0.5", "run --samplers=top_k;temperature --typical 0.5"),
        ("run --top-n-sigma 1 -l 5+1 -l 6-2", "run --top-nsigma 1 --logit-bias 5+1 --logit-bias 6-2"),
        ("run -j {}", "run --json-schema {}"),
        ("serve -jf a.json", "serve --json-schema-file a.json"),
        ("run -cnv -sys hello", "run --chat --system hello"),
        ("run -no-cnv --no-escape", "run"),
        ("serve -np 3 -a x -to 5 -cb --metrics", "serve --parallel 3 --alias x --timeout 5 --batch-slots=on"),
        ("serve --cors-origins *", "serve --cors-origin *"),
        ("run --rpc a:1,b:2", "run --rpc a:1 --rpc b:2"),
        ("run --manage experts", "run --stream experts"),
        ("run --manage=mapped", "run --stream mapped"),
        ("run --profile x --no-profile", "run --timeline x --no-timeline"),
        ("plan a --profile x", "plan a --machine x"),
        ("profile --refresh", "machine --refresh"),
        // t8/hypura.
        ("profile --force", "machine --refresh"),
        ("estimate a.gguf", "plan a.gguf"),
        ("bench a.gguf --max-tokens 9 --context 512 --prompt x", "bench a.gguf -n 9 --ctx 512 --prompt x"),
        ("bench a.gguf --baseline --force", "bench a.gguf --baseline"),
        ("run a.gguf --prompt x --max-tokens 9", "run a.gguf -p x -n 9"),
        ("run a.gguf --interactive --context 64", "run a.gguf --chat --ctx 64"),
        ("serve a.gguf --context 4096 --host 127.0.0.1", "serve a.gguf --ctx 4096 --host 127.0.0.1"),
        ("iobench a.gguf --read-gb 1.0", "iobench a.gguf"),
        ("run a.gguf --layer-skip", "run a.gguf --layer-skip auto"),
        ("run --layer-skip a.gguf -n 4", "run --layer-skip auto a.gguf -n 4"),
        ("run --layer-skip a.json a.gguf", "run --layer-skip a.json a.gguf"),
        ("run --layer-skip=a.gguf b.gguf", "run --layer-skip=a.gguf b.gguf"),
        ("perplexity -f x --hotswap", "perplexity -f x --reload-loop"),
        ("trace record -o x -m a.gguf -ngl 1", "trace record -o x a.gguf --n-gpu-layers 1"),
    ] {
        assert_eq!(parsed(&format!("terrace {theirs}")), parsed(&format!("terrace {ours}")), "{theirs}");
    }
}

#[test]
fn lanes_that_say_too_little_are_refused() {
    for (line, why) in [
        ("run --moe-hot-cache-max-mib much", "must be a number of MiB"),
        ("run --moe-hot-cache-max-mib -2", "must be a number of MiB"),
        ("run --moe-hot-cache-auto-reserve-mib -1", "must be a number of MiB"),
        ("run --moe-hot-cache-second-max-mib 5", "the lane has a size, but no device"),
        ("run --moe-hot-cache-lane CUDA0", "must be DEVICE:MIB"),
        ("run --moe-hot-cache-lane CUDA0:x", "must be a number of MiB"),
        ("run --moe-hot-cache-update-rate 2", "must be a number from 0 to 1"),
        ("run --moe-hot-cache-device-strategy cold", "must be warm, hot-even or even-split"),
    ] {
        let refused = rewritten(&format!("terrace {line}")).unwrap_err();
        assert!(refused.refusal.why.starts_with(why), "{line}: {refused:?}");
    }
}

#[test]
fn values_and_what_is_behind_two_dashes_stay() {
    for line in [
        "terrace run -p -ngl -n5 -- -ngl",
        "terrace run --prompt -c --system -m",
        "terrace run -f -",
        "terrace --config -m run a.gguf",
        "terrace machine --model a.gguf",
        "terrace run -vn 5",
    ] {
        assert_eq!(rewritten(line).unwrap(), line.split_whitespace().collect::<Vec<_>>());
    }
    assert_eq!(rewritten("terrace bench -hf a/b -- x").unwrap(), ["terrace", "bench", "hf:a/b", "--", "x"]);
}

#[test]
fn removed_commands_say_what_to_use() {
    let cli = Cli::command();
    for Removed { words, refusal } in REMOVED {
        let line = words.join(" ");
        for written in [format!("terrace {line}"), format!("terrace -v {line} a.gguf --what ever")] {
            let expected = Refused { spelling: format!("terrace {line}"), refusal: *refusal };
            assert_eq!(rewritten(&written), Err(expected), "{written}");
        }
        assert!(!refusal.why.is_empty() && refusal.hint.contains("`terrace "), "{line}");
        let mut command = Some(&cli);
        for word in *words {
            command = command.and_then(|command| command.find_subcommand(word));
        }
        assert!(command.is_none(), "{line} is there");
    }
    // A value of that name is none of them.
    assert!(rewritten("terrace run calibrate-skip").is_ok());
}

#[test]
fn every_line_of_the_table_is_of_use() {
    let cli = Cli::command();
    let commands: Vec<&Command> =
        cli.get_subcommands().flat_map(|sub| std::iter::once(sub).chain(sub.get_subcommands())).collect();
    for (at, alias) in aliases().enumerate() {
        for name in alias.names {
            // Some command gets here by this spelling, and not by an earlier line.
            let earlier = |command: &Command| {
                aliases().take(at).any(|other| other.names.contains(name) && applies(other, command))
            };
            assert!(
                commands.iter().any(|command| applies(alias, command) && !earlier(command)),
                "{name} in {:?}",
                alias.names
            );
        }
    }
}

#[test]
fn what_is_ignored_is_said_and_takes_its_value() {
    let ignored = |line: &str| {
        let words = line.split_whitespace().map(OsString::from).collect();
        let rewritten =
            rewrite(&Cli::command(), words).unwrap_or_else(|refused| panic!("{line}: {refused:?}"));
        let names: Vec<String> = rewritten.ignored.into_iter().map(|(name, _)| name).collect();
        let words: Vec<_> = rewritten.words.iter().map(|word| word.to_string_lossy()).collect();
        (words.join(" "), names.join(" "))
    };
    for (line, words, names) in [
        ("t run --mlock --numa distribute x", "t run x", "--mlock --numa"),
        (
            "t serve --no-webui --log-file a.log --cache-reuse 256 x",
            "t serve x",
            "--no-webui --log-file --cache-reuse",
        ),
        ("t run --color x", "t run x", "--color"),
        ("t run --color on x", "t run x", "--color"),
        ("t run --fit on -kvu --no-perf --log-disable x", "t run x", "-kvu --log-disable"),
        ("t run --fit x", "t run x", ""),
        (
            "t run --moe-hot-cache-auto-reserve-mib 5 --moe-hot-cache-second-device CUDA1 x",
            "t run x",
            "--moe-hot-cache-auto-reserve-mib --moe-hot-cache-second-device",
        ),
        ("t serve --no-perf --auto-learn --learned x y", "t serve --auto-learn --learned x y", "--no-perf"),
        (
            "t serve --moe-hot-cache-update-rate 0.25 --moe-hot-cache-pp-reduce-merge on \
             --moe-hot-cache-pp-dense-min-tokens 64 --moe-hot-cache-pp-min-hot-expert-ratio 0.2 --log-tg-progress x",
            "t serve x",
            "--moe-hot-cache-update-rate --moe-hot-cache-pp-reduce-merge --moe-hot-cache-pp-dense-min-tokens \
             --moe-hot-cache-pp-min-hot-expert-ratio --log-tg-progress",
        ),
        ("t run -fa -c 5", "t run --ctx=5", ""),
        ("t run -fa 0 -st x", "t run x", "-fa"),
        ("t run --cpu_strict 1 --ctx_size 64 x", "t run --ctx=64 x", "--cpu_strict"),
        ("t run -i --no-display-prompt x", "t run x --chat", ""),
        ("t run -i x -p y", "t run x -p y", "-i"),
        ("t run -e -p a\\nb x", "t run -p a\nb x", ""),
        ("t run -ctk bf16 -ctv q5_1", "t run --cache-type-k=bf16 --cache-type-v=q5_1", ""),
        ("t run --spec-type ngram-mod,draft-mtp", "t run --draft=ngram", ""),
        ("t run -lm dio -fitt 512 -lv 4", "t run --mmap=off --direct=on --vram-reserve=512MiB --verbose", ""),
        ("t run -sm none -mg 1 -ts 3,1 x", "t run x", "-sm -mg -ts"),
    ] {
        assert_eq!(ignored(line), (words.to_owned(), names.to_owned()), "{line}");
    }
}

#[test]
fn remarks_on_what_is_obeyed_stand_apart() {
    for (line, words, noted) in [
        ("t run --draft-max 64 --draft 4", "t run --draft-max=15 --draft-max=4", "--draft-max"),
        ("t serve --gpt-oss-120b-default", "t serve hf:ggml-org/gpt-oss-120b-GGUF", "--gpt-oss-120b-default"),
        ("t bench -p 512 -n 0 x", "t bench --prompt-tokens=512 -n1 x", "-p -n"),
        ("t bench -lm mlock,dio x", "t bench --vary=load-mode=mmap,dio x", "-lm"),
    ] {
        let rewritten = rewrite(&Cli::command(), line.split_whitespace().map(OsString::from).collect());
        let rewritten = rewritten.unwrap_or_else(|refused| panic!("{line}: {refused:?}"));
        let names: Vec<String> = rewritten.noted.into_iter().map(|(name, _)| name).collect();
        let said: Vec<_> = rewritten.words.iter().map(|word| word.to_string_lossy()).collect();
        assert_eq!((said.join(" "), names.join(" ")), (words.to_owned(), noted.to_owned()), "{line}");
        assert_eq!(rewritten.ignored, [], "{line}");
    }
}

#[test]
fn a_model_is_named_once() {
    for line in [
        "terrace run a.gguf --hf-repo a/b",
        "terrace run -m a.gguf -m b.gguf",
        "terrace serve -hf a/b -- a.gguf",
        "terrace run --gpt-oss-20b-default -p x a.gguf",
    ] {
        assert_eq!(rewritten(line).unwrap_err().refusal.why, "the model is given twice", "{line}");
    }
    for line in
        ["terrace run -p a.gguf -hf a/b", "terrace bench a.gguf -m b.gguf", "terrace run -hf a/b -hff c"]
    {
        assert!(rewritten(line).is_ok(), "{line}");
    }
}
