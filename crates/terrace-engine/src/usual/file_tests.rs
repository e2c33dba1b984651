use super::file::{Totals, UsualFile};
use std::fs;
use tempfile::TempDir;
use terrace_model::identity::FileIdentity;
use terrace_plan::{Expected, ExpectedSource};

fn identity(name: &str) -> FileIdentity {
    FileIdentity { name: name.into(), bytes: 1000, header: 7 }
}

/// The totals of a run with these answers.
fn run(answers: &[(usize, usize)]) -> Totals {
    let mut totals = Totals::default();
    answers.iter().for_each(|&(prompt, output)| totals.count(prompt, output));
    totals
}

fn expecting(prompt: u32, output: u32, runs: u32) -> Option<Expected> {
    Some(Expected { prompt, output, source: ExpectedSource::Earlier { runs } })
}

#[test]
fn means_are_rounded_and_follow_the_work() {
    assert_eq!(Totals::default().expected(), None);
    assert_eq!(run(&[(5000, 100)]).expected(), expecting(4096, 96, 1));
    assert_eq!(run(&[(5200, 0)]).expected(), expecting(6144, 1, 1), "at least one token");
    // A little more or less is the same.
    assert_eq!(run(&[(500, 250), (530, 260)]).expected(), expecting(512, 256, 1));
    let mut totals = Totals::default();
    for runs in 1..=3 {
        totals = totals.followed_by(&run(&[(64, 1024)]));
        assert_eq!(totals.expected(), expecting(64, 1024, runs));
    }
    for _ in 0..8 {
        totals = totals.followed_by(&run(&[(8192, 16)]));
    }
    assert_eq!(totals.expected(), expecting(8192, 16, 11), "the first runs are forgotten");
}

#[test]
fn totals_read_back_per_model() {
    let dir = TempDir::new().unwrap();
    let at = dir.path().join("new/usual");
    let file = UsualFile::new(&at, identity("a b/c.gguf"));
    assert_eq!(file.read().unwrap(), Totals::default());
    let totals = run(&[(10, 20)]);
    file.write(&totals).unwrap();
    assert_eq!(file.read().unwrap(), totals);
    assert_eq!(UsualFile::new(&at, identity("d.gguf")).read().unwrap(), Totals::default());
    assert_eq!(fs::read_dir(&at).unwrap().count(), 1, "nothing else is left there");
}

#[test]
fn files_that_are_not_ours_are_refused_by_name_and_replaced() {
    let dir = TempDir::new().unwrap();
    let file = UsualFile::new(dir.path(), identity("m.gguf"));
    let totals = run(&[(10, 20)]);
    file.write(&totals).unwrap();
    let good = fs::read_to_string(file.path()).unwrap();
    let broken = [
        String::new(),
        "{".into(),
        "[1]".into(),
        good[..good.len() / 2].to_owned(),
        good.replace("terrace-usual-lengths", "other"),
        good.replace("\"version\":1", "\"version\":2"),
        good.replace("\"header\":7", "\"header\":8"),
        good.replace("m.gguf", "n.gguf"),
        good.replace("\"answers\":64", "\"answers\":0"),
        good.replace("\"answers\":64", "\"answers\":-64"),
        good.replace("\"answers\":64", "\"answers\":1e99"),
        good.replace("\"runs\":1", "\"runs\":0"),
        good.replace("\"prompt_tokens\":640", "\"prompt_tokens\":18446744073709551615"),
        format!("{}{good}", " ".repeat(5000)),
    ];
    for text in broken {
        assert_ne!(text, good);
        fs::write(file.path(), &text).unwrap();
        let error = file.read().unwrap_err().to_string();
        assert!(error.contains("m-3e8-00000007.json: ") && !error.contains('\n'), "{error}");
        file.write(&totals).unwrap();
        assert_eq!(file.read().unwrap(), totals);
    }
}
