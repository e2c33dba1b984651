use super::file::MAX_FILE;
use super::*;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

fn identity(name: &str) -> FileIdentity {
    FileIdentity { name: name.into(), bytes: 1000, header: 7 }
}

/// Lengths of a run with these answers.
fn run(answers: &[(usize, usize)]) -> Lengths {
    let mut lengths = Lengths::default();
    answers.iter().for_each(|&(prompt, output)| lengths.count(prompt, output));
    lengths
}

fn record(counts: [u64; 4]) -> ModelRecord {
    let experts = vec![LayerCounts { layer: 1, counts: counts.into() }];
    ModelRecord { experts, lengths: run(&[(10, 20)]), ..ModelRecord::default() }
}

fn write(file: &RecordFile, record: &ModelRecord) {
    file.update(|kept| kept.clone_from(record)).unwrap();
}

#[test]
fn means_are_rounded_and_follow_the_work() {
    let usual = |prompt, output, runs| Some(UsualLengths { prompt, output, runs });
    assert_eq!(Lengths::default().usual(), None);
    assert_eq!(run(&[(5000, 100)]).usual(), usual(4096, 96, 1));
    assert_eq!(run(&[(5200, 0)]).usual(), usual(6144, 1, 1), "at least one token");
    // A little more or less is the same.
    assert_eq!(run(&[(500, 250), (530, 260)]).usual(), usual(512, 256, 1));
    let mut lengths = Lengths::default();
    for runs in 1..=3 {
        lengths = lengths.followed_by(&run(&[(64, 1024)]));
        assert_eq!(lengths.usual(), usual(64, 1024, runs));
    }
    for _ in 0..8 {
        lengths = lengths.followed_by(&run(&[(8192, 16)]));
    }
    assert_eq!(lengths.usual(), usual(8192, 16, 11), "the first runs are forgotten");
}

#[test]
fn records_read_back_per_model() {
    let dir = TempDir::new().unwrap();
    let at = dir.path().join("new/records");
    let file = RecordFile::new(&at, identity("a b/c.gguf"));
    assert_eq!(file.path(), at.join("a_b_c-3e8-00000007.json"));
    assert_eq!(file.read().unwrap(), ModelRecord::default());
    let written = record([0, 1, 2, u64::MAX]);
    write(&file, &written);
    assert_eq!(file.read().unwrap(), written);
    let others = [
        FileIdentity { bytes: 1001, ..identity("a b/c.gguf") },
        FileIdentity { header: 8, ..identity("a b/c.gguf") },
        identity("c.gguf"),
    ];
    for other in others {
        assert_eq!(RecordFile::new(&at, other).read().unwrap(), ModelRecord::default());
    }
    assert_eq!(fs::read_dir(&at).unwrap().count(), 1, "nothing else is left there");
}

#[test]
fn sections_that_are_not_changed_stay() {
    let dir = TempDir::new().unwrap();
    let file = RecordFile::new(dir.path(), identity("m.gguf"));
    write(&file, &record([1, 2, 3, 4]));
    let more = fs::read_to_string(file.path())
        .unwrap()
        .replace("\"experts\":", "\"later\":{\"a\":[1]},\"experts\":");
    fs::write(file.path(), more).unwrap();
    file.update(|kept| kept.lengths = run(&[(1000, 1)])).unwrap();
    file.update(|kept| kept.experts[0].counts[3] = 5).unwrap();
    let kept = file.read().unwrap();
    assert_eq!((kept.experts, kept.lengths), (record([1, 2, 3, 5]).experts, run(&[(1000, 1)])));
    assert!(fs::read_to_string(file.path()).unwrap().contains("\"later\":{\"a\":[1]}"));
}

#[test]
fn concurrent_changes_are_all_there() {
    let dir = TempDir::new().unwrap();
    let file = RecordFile::new(dir.path(), identity("m.gguf"));
    write(&file, &record([0; 4]));
    std::thread::scope(|scope| {
        for expert in 0..4 {
            let file = &file;
            scope.spawn(move || {
                for _ in 0..50 {
                    file.update(|kept| kept.experts[0].counts[expert] += 1).unwrap();
                }
            });
        }
    });
    assert_eq!(file.read().unwrap(), record([50; 4]));
}

#[test]
fn files_that_are_not_ours_are_refused_by_name_and_replaced() {
    let dir = TempDir::new().unwrap();
    let file = RecordFile::new(dir.path(), identity("m.gguf"));
    let written = record([1, 2, 3, 4]);
    write(&file, &written);
    let good = fs::read_to_string(file.path()).unwrap();
    let broken = [
        String::new(),
        "{".into(),
        "[1]".into(),
        good[..good.len() / 2].to_owned(),
        good.replace(KIND.format, "other"),
        good.replace("\"version\":1", "\"version\":2"),
        good.replace("\"header\":7", "\"header\":8"),
        good.replace("m.gguf", "n.gguf"),
        good.replace("[1,2,3,4]", "[1,2,3,-4]"),
        good.replace("[1,2,3,4]", "[1,2,3,4e99]"),
        good.replace("[1,2,3,4]}", "[1,2,3,4]},{\"layer\":1,\"counts\":[1,2,3,4]}"),
        good.replace("\"answers\":64", "\"answers\":0"),
        good.replace("\"answers\":64", "\"answers\":-64"),
        good.replace("\"answers\":64", "\"answers\":1e99"),
        good.replace("\"runs\":1", "\"runs\":0"),
        good.replace("\"prompt_tokens\":640", "\"prompt_tokens\":18446744073709551615"),
        good.replace("\"experts\":", &format!("\"deep\":{},\"experts\":", "[".repeat(10_000))),
        format!("{}{good}", " ".repeat(MAX_FILE as usize)),
    ];
    for text in broken {
        assert_ne!(text, good);
        fs::write(file.path(), &text).unwrap();
        let error = file.read().unwrap_err().to_string();
        assert!(error.contains("m-3e8-00000007.json: ") && !error.contains('\n'), "{error}");
        write(&file, &written);
        assert_eq!(file.read().unwrap(), written);
    }
    fs::write(file.path(), [0xff, 0xfe]).unwrap();
    file.read().unwrap_err();
    fs::remove_file(file.path()).unwrap();
    fs::create_dir(file.path()).unwrap();
    file.read().unwrap_err();
    file.update(|_| ()).unwrap_err();
}

#[test]
fn records_are_told_from_other_formats() {
    let text = record([1, 2, 3, 4]).to_text(&identity("m.gguf"));
    assert_eq!(ModelRecord::recognise(text.as_bytes()), Some(Ok(record([1, 2, 3, 4]))));
    for other in ["", "{}", "[1]", "{\"schema\":\"x\",\"layers\":[]}"] {
        assert_eq!(ModelRecord::recognise(other.as_bytes()), None);
    }
    let wrong = text.replace("[1,2,3,4]", "[-1]");
    assert!(ModelRecord::recognise(wrong.as_bytes()).unwrap().is_err());
}

#[test]
fn the_directory_and_its_files_stay_small() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("mine.txt"), "stays").unwrap();
    let file = |n: u64| RecordFile::new(dir.path(), identity(&format!("{n}.gguf")));
    for n in 0..MAX_MODELS as u64 + 6 {
        write(&file(n), &record([n; 4]));
        // Distinct times, whatever the clock's resolution.
        set_modified(file(n).path(), 1000 + n);
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), MAX_MODELS + 1);
    assert_eq!((file(5).read().unwrap(), file(6).read().unwrap()), (ModelRecord::default(), record([6; 4])));

    let large = RecordFile::new(dir.path(), identity("large.gguf"));
    let many = vec![LayerCounts { layer: 1, counts: vec![u64::MAX; 300_000] }];
    assert!(large.update(|kept| kept.experts = many).unwrap_err().to_string().contains("too many"));
    assert_eq!(large.read().unwrap(), ModelRecord::default());
}

fn set_modified(path: &Path, seconds: u64) {
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
}
