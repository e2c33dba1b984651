//! Settings from variables and from the configuration file.

#[path = "../../src/settings/mod.rs"]
mod source;

use source::{Control, Settings};
use std::ffi::OsString;
use std::path::Path;
use terrace_lanes::HotUpdate;
use terrace_model::{ByteSize, SizeChoice};
use terrace_plan::copies::{LAYER_CURVE, Weighting};
use terrace_plan::options::{HotLanes, HotOptions};
use terrace_plan::{Budget, HotSize, HotSplit, Manage};
use terrace_store::DirectChoice;

fn read(variables: &[(&str, &str)]) -> Result<(Settings, Vec<String>), String> {
    Settings::read(&|name| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
    })
}

#[test]
fn variables_mean_what_options_of_the_same_names_do() {
    let (none, _) = read(&[]).unwrap();
    assert_eq!((none.memory.ram_budget, none.memory.stream), (Budget::Auto, Manage::Auto));
    assert_eq!(none.io.direct, DirectChoice::Auto);
    assert_eq!((none.trace, none.stats, none.control), (None, None, Control::Auto));
    assert_eq!((none.cache.lookahead, none.records), (SizeChoice::Auto, None), "nobody's folder is known");
    let (set, _) = read(&[
        ("TERRACE_RAM_BUDGET", "3GiB"),
        ("TERRACE_STREAM", "ffn"),
        ("TERRACE_DIRECT", "off"),
        ("TERRACE_CACHE_POLICY", "lfru"),
        ("TERRACE_TRACE", "t.trace"),
        ("TERRACE_TIMELINE", ""),
        ("TERRACE_CONTROL", "/run/me/socket"),
    ])
    .unwrap();
    assert_eq!((set.memory.ram_budget, set.memory.stream), (Budget::Bytes(ByteSize::gib(3)), Manage::Ffn));
    assert_eq!((set.io.direct, set.cache.cache_policy.to_string()), (DirectChoice::Off, "lfru".into()));
    assert_eq!((set.io.io, set.trace, set.timeline), (none.io.io, Some("t.trace".into()), None));
    assert_eq!(set.control, Control::At("/run/me/socket".into()));
    let copies = |value: &str| read(&[("TERRACE_HOT_CACHE", value)]).unwrap().0.hot;
    assert!(!none.hot.is_given() && !copies("auto").is_given() && !copies("off").is_given());
    assert_eq!(none.hot.hot_lanes, HotLanes::Auto);
    let sizes = copies("2GiB,GPU1=off,GPU2=1MiB");
    let on = ["GPU0", "GPU1", "GPU2"].map(|device| sizes.size_on(device));
    assert_eq!(on, [HotSize::Bytes(ByteSize::gib(2)), HotSize::Off, HotSize::Bytes(ByteSize::mib(1))]);
    let (how, _) = read(&[("TERRACE_HOT_UPDATE", "off"), ("TERRACE_HOT_LANES", "always")]).unwrap();
    assert_eq!((how.hot.hot_update, how.hot.hot_lanes), (HotUpdate::Off, HotLanes::Always));
    let of = |hot: &HotOptions| (hot.hot_split, hot.hot_weighting, hot.hot_layer_curve);
    assert_eq!(of(&none.hot), (HotSplit::Layers, Weighting::Even, LAYER_CURVE));
    let (set, lines) = read(&[
        ("TERRACE_HOT_SPLIT", "even"),
        ("TERRACE_HOT_WEIGHTING", "uses"),
        ("TERRACE_HOT_LAYER_CURVE", "0.25"),
        ("TERRACE_LEARNED", "learned.json"),
        ("TERRACE_QUEUE_DEPTH", "7"),
        ("TERRACE_REQUEST_SIZE", "64KiB"),
        ("TERRACE_REPLICA", "/a,/b"),
        // Old names.
        ("TERRACE_MANAGE", "ffn"),
        ("TERRACE_PROFILE", "t.json"),
    ])
    .unwrap();
    assert_eq!(of(&set.hot), (HotSplit::Even, Weighting::Uses, 0.25));
    assert_eq!((set.learned, set.io.queue_depth), (Some("learned.json".into()), Some(7)));
    assert_eq!(set.io.request_size, Some(ByteSize::kib(64)));
    assert_eq!(set.replicas.paths(), [Path::new("/a"), Path::new("/b")]);
    assert_eq!((set.memory.stream, set.timeline), (Manage::Ffn, Some("t.json".into())));
    assert!(lines.is_empty(), "{lines:?}");
    let home = ("HOME", "/home/me");
    let kept = |more: &[(&str, &str)]| read(&[&[home], more].concat()).unwrap().0.records;
    assert_eq!(kept(&[]), Some("/home/me/.cache/terrace/records".into()));
    assert_eq!(kept(&[("XDG_CACHE_HOME", "/c")]), Some("/c/terrace/records".into()));
    assert_eq!(kept(&[("TERRACE_WARM_START", "off")]), None);
    for (name, value) in [
        ("TERRACE_IO", "fast"),
        ("TERRACE_WARM_START", "warm"),
        ("TERRACE_CONTROL", "nowhere"),
        ("TERRACE_HOT_CACHE", "lots"),
        ("TERRACE_HOT_CACHE", "GPU0=1GiB,GPU1="),
        ("TERRACE_HOT_UPDATE", "fast"),
        ("TERRACE_HOT_LANES", "never"),
        ("TERRACE_HOT_SPLIT", "half"),
        ("TERRACE_HOT_WEIGHTING", "heavy"),
        ("TERRACE_HOT_LAYER_CURVE", "1.5"),
        ("TERRACE_QUEUE_DEPTH", "0"),
        ("TERRACE_REQUEST_SIZE", "1"),
    ] {
        let error = read(&[(name, value)]).unwrap_err();
        assert!(error.starts_with(&format!("{name}={value}: ")), "{error}");
    }
}

#[test]
fn what_has_no_effect_is_named() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = dir.path().join("config.toml");
    // Those of other commands are in the same file, and so are sections of models.
    std::fs::write(&file, "verify = true\nctx = 4096\n[models.a]\nmodel = \"a.gguf\"\n").unwrap();
    let config = ("TERRACE_CONFIG", file.to_str().unwrap());
    let lines = |more: &[(&str, &str)]| read(&[&[config], more].concat()).unwrap().1;
    let of_file = format!("configuration file {}: `verify` has no effect in this program", file.display());
    assert_eq!(
        lines(&[("TERRACE_STREAM", "ffn"), ("TERRACE_PLUGIN", "p.so"), ("TERRACE_ADAPT", "")]),
        [&of_file[..]]
    );
    assert_eq!(
        lines(&[("TERRACE_ADAPT", "on"), ("TERRACE_CTX", "1"), ("TERRACE_HOTSWAP", "1")]),
        ["TERRACE_ADAPT, TERRACE_CTX have no effect in this program", &of_file],
    );
    assert_eq!(read(&[("TERRACE_VERIFY", "1")]).unwrap().1, ["TERRACE_VERIFY has no effect in this program"]);
}

#[test]
fn the_file_says_what_variables_do_not() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let home = dir.path().to_str().unwrap();
    let file = dir.path().join("terrace/config.toml");
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    let here = ("XDG_CONFIG_HOME", home);
    // Keys of commands that this is not are known, and mean nothing here.
    write("ram_budget = \"3GiB\"\nmanage = \"ffn\"\nctx = 4096\nstats = \"s.json\"\nram-budgte = 1\n");
    let (set, unknown) = read(&[here, ("TERRACE_STREAM", "experts")]).unwrap();
    assert_eq!(
        (set.memory.ram_budget, set.memory.stream),
        (Budget::Bytes(ByteSize::gib(3)), Manage::Experts)
    );
    assert_eq!(set.stats, Some("s.json".into()));
    assert!(unknown.len() == 1 && unknown[0].ends_with("unknown key `ram-budgte`"), "{unknown:?}");
    assert_eq!(read(&[here]).unwrap().0.memory.stream, Manage::Ffn);
    write("hot-cache = [\"GPU0=1MiB\", \"off\"]\n");
    let sizes = read(&[here]).unwrap().0.hot;
    assert_eq!(
        (sizes.size_on("GPU0"), sizes.size_on("GPU1")),
        (HotSize::Bytes(ByteSize::mib(1)), HotSize::Off)
    );
    write("ram_budget = \"3GiB\"\nmanage = \"ffn\"\n");
    assert_eq!(read(&[here, ("TERRACE_CONFIG", "/dev/null")]).unwrap().0.memory.stream, Manage::Auto);

    for (text, why) in [
        ("stream = 3", "key `stream`: "),
        ("a = ", "line 1: "),
        ("control = \"here\"", "key `control`: must be auto, off or a path"),
    ] {
        write(text);
        let error = read(&[here]).unwrap_err();
        assert!(error.contains(why) && error.contains("config.toml: "), "{error}");
    }
    let missing = dir.path().join("missing.toml");
    let error = read(&[("TERRACE_CONFIG", missing.to_str().unwrap())]).unwrap_err();
    assert!(error.contains("missing.toml: "), "{error}");
    assert!(read(&[("HOME", "/nowhere")]).is_ok());
}
