//! `terrace batch`: many requests of a file, whose answers survive whatever happens to the process.

use crate::common::{bundled, failure, stderr, terrace};
use crate::server::golden;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_testkit::thorough;

/// Slots, in which experts stream within little RAM.
const OPTIONS: [&str; 6] = ["--parallel", "24", "--ctx", "256", "--ram-budget", "6MiB"];

struct Fixture {
    dir: TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self { dir: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes requests, one a line.
    fn requests(&self, lines: &[String]) -> PathBuf {
        let path = self.path("in.jsonl");
        fs::write(&path, lines.join("\n") + "\n").unwrap();
        path
    }

    fn command(&self, output: &str) -> Command {
        let mut command = terrace();
        command.arg("batch").arg(bundled()).arg(self.path("in.jsonl")).arg("-o").arg(self.path(output));
        command.args(OPTIONS).args(["--temp", "0"]);
        command
    }

    fn answers(&self, output: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path(output)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A request with a prompt and an answer of lengths of its own.
fn request(number: usize) -> String {
    let text = fs::read_to_string(bundled().with_file_name("sample.kjv.txt")).unwrap();
    let begin = 100 + 97 * number;
    let prompt: String = text.chars().skip(begin).take(20 + number * 13 % 90).collect();
    let body = json!({"prompt": prompt, "max_tokens": 1 + number * 7 % 24});
    json!({"custom_id": format!("r-{number}"), "method": "POST", "url": "/v1/completions", "body": body})
        .to_string()
}

fn prompt_of(request: &str) -> (String, usize) {
    let request: Value = serde_json::from_str(request).unwrap();
    let body = &request["body"];
    (body["prompt"].as_str().unwrap().to_owned(), body["max_tokens"].as_u64().unwrap() as usize)
}

/// What does not depend on when an answer was made.
fn texts(answers: &[Value]) -> Vec<(String, Value)> {
    let of = |answer: &Value| {
        let body = &answer["response"]["body"];
        let choice = &body["choices"][0];
        let told = json!([choice["text"], choice["finish_reason"], body["usage"]["completion_tokens"]]);
        (answer["custom_id"].as_str().unwrap_or_default().to_owned(), told)
    };
    answers.iter().map(of).collect()
}

#[track_caller]
fn succeeded(output: &Output) {
    assert!(output.status.success(), "{:?}: {}", output.status, stderr(output));
}

#[test]
fn answers_are_those_of_lone_runs_in_the_order_of_requests() {
    let fixture = Fixture::new();
    let requests: Vec<String> = (0..40).map(request).collect();
    fixture.requests(&requests);
    let output = fixture.command("out.jsonl").output().unwrap();
    succeeded(&output);
    let said = stderr(&output);
    assert!(said.contains("40 of 40 done") && said.contains("GB read per 1,000 tokens"), "{said}");
    let answers = fixture.answers("out.jsonl");
    assert!(!fixture.path("out.jsonl.partial").exists());
    for (number, (request, answer)) in requests.iter().zip(&answers).enumerate() {
        assert_eq!(answer["custom_id"], format!("r-{number}"));
        assert_eq!((&answer["response"]["status_code"], &answer["error"]), (&json!(200), &Value::Null));
        assert!(answer["id"].as_str().unwrap().starts_with("batch_req_"));
        if number % 5 == 0 {
            let (prompt, tokens) = prompt_of(request);
            assert_eq!(answer["response"]["body"]["choices"][0]["text"], golden(&prompt, tokens), "{number}");
        }
    }
    assert_eq!(answers.len(), requests.len());
    // The same command has nothing to do.
    let output = fixture.command("out.jsonl").output().unwrap();
    succeeded(&output);
    assert!(stderr(&output).contains("has the answers to all 40 requests already"), "{}", stderr(&output));
}

#[test]
fn what_is_wrong_with_a_request_is_its_answer() {
    let fixture = Fixture::new();
    let long = json!({"prompt": "word ".repeat(2000), "custom_id": "long"}).to_string();
    let lines = [
        request(1),
        "nonsense".into(),
        json!({"messages": [{"role": "user", "content": "x"}], "custom_id": "chat", "max_tokens": 2})
            .to_string(),
        long,
        json!({"custom_id": "url", "url": "/v1/models", "body": {}}).to_string(),
        json!({"prompt": "x", "temperature": "hot", "custom_id": "hot"}).to_string(),
        json!({"prompt": "In the beginning", "max_tokens": 3}).to_string(),
    ];
    fixture.requests(&lines);
    let error = failure_of(&fixture.command("out.jsonl").output().unwrap());
    assert!(error.ends_with("requests failed"), "{error}");
    let answers = fixture.answers("out.jsonl");
    let of = |at: usize| &answers[at];
    assert_eq!(answers.len(), lines.len());
    assert_eq!(of(0)["response"]["status_code"], 200);
    assert_eq!((&of(1)["custom_id"], &of(1)["error"]["code"]), (&Value::Null, &json!("invalid_json_line")));
    let too_long = &of(3)["response"];
    assert_eq!(too_long["status_code"], 400);
    assert_eq!(too_long["body"]["error"]["code"], "context_length_exceeded");
    assert_eq!(of(4)["error"]["code"], "invalid_url");
    assert_eq!(of(5)["response"]["body"]["error"]["param"], "temperature");
    assert_eq!((&of(6)["custom_id"], &of(6)["response"]["status_code"]), (&json!("line-7"), &json!(200)));
    // Answers stay; failures are tried again if that is asked for.
    let before = texts(&answers);
    let mut again = fixture.command("out.jsonl");
    again.args(["--retry-failed", "--ctx", "4096"]);
    failure_of(&again.output().unwrap());
    let answers = fixture.answers("out.jsonl");
    assert_eq!(answers[3]["response"]["status_code"], 200);
    assert_eq!(answers[1]["error"]["code"], "invalid_json_line");
    assert_eq!((&texts(&answers)[0], &texts(&answers)[6]), (&before[0], &before[6]));
}

/// The error of a batch with failures, after what it says of its work.
#[track_caller]
fn failure_of(output: &Output) -> String {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    said.lines().find_map(|line| line.strip_prefix("error: ")).expect("an error").to_owned()
}

#[test]
fn outputs_of_other_requests_are_refused() {
    let fixture = Fixture::new();
    fixture.requests(&[request(1), request(2)]);
    succeeded(&fixture.command("out.jsonl").output().unwrap());
    fixture.requests(&[request(1)]);
    let error = failure(&fixture.command("out.jsonl").output().unwrap(), 1);
    assert!(error.contains("has 2 answers, but there are 1 requests"), "{error}");
    fs::write(fixture.path("text"), "mine").unwrap();
    let error = failure(&fixture.command("text").output().unwrap(), 1);
    assert!(error.contains("not the answers of a batch"), "{error}");
    assert_eq!(fs::read_to_string(fixture.path("text")).unwrap(), "mine");
}

/// Waits until the journal has so many answers more, or the process has ended.
fn wait_for(child: &mut Child, journal: &Path, answers: usize) -> bool {
    let begin = Instant::now();
    loop {
        let lines = fs::read(journal).map_or(0, |text| text.iter().filter(|&&byte| byte == b'\n').count());
        if lines > answers {
            return true;
        }
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        assert!(begin.elapsed() < Duration::from_secs(300), "no answers");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Killed at any time, it goes on from what it has, and the output is that of a run that nothing stopped.
#[test]
fn killed_batches_go_on_and_end_with_the_same_output() {
    let (count, kills) = thorough((60, 3), (500, 5));
    let fixture = Fixture::new();
    fixture.requests(&(0..count).map(request).collect::<Vec<_>>());
    succeeded(&fixture.command("whole.jsonl").output().unwrap());
    let whole = fixture.answers("whole.jsonl");
    let journal = fixture.path("out.jsonl.partial");
    let mut kept = BTreeMap::new();
    for kill in 1..=kills {
        let mut child =
            fixture.command("out.jsonl").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Spread over the batch, a few milliseconds after an answer.
        let running = wait_for(&mut child, &journal, kill * count / (kills + 1));
        std::thread::sleep(Duration::from_millis(fastrand::u64(0..30)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(running || fixture.path("out.jsonl").exists(), "it has failed");
        assert!(!fixture.path("out.jsonl").exists(), "killed too late to tell anything");
        // No answer is lost or changed by what comes after.
        let text = fs::read_to_string(&journal).unwrap();
        for line in text.split_inclusive('\n').skip(1).filter(|line| line.ends_with('\n')) {
            let entry: Value = serde_json::from_str(line).unwrap();
            let before = kept.insert(entry["request"].as_u64().unwrap(), entry.clone());
            assert!(before.is_none_or(|before| before == entry), "answered twice: {entry}");
        }
        // As if it had been killed within a line.
        if kill == 1 {
            fs::write(&journal, text + "{\"request\":0,\"line\":\"00").unwrap();
        }
    }
    assert!(kept.len() > kills, "{} answers before the last run", kept.len());
    let output = fixture.command("out.jsonl").output().unwrap();
    succeeded(&output);
    let answers = fixture.answers("out.jsonl");
    assert_eq!(texts(&answers), texts(&whole));
    for (request, entry) in &kept {
        assert_eq!(answers[*request as usize], entry["answer"], "an answer was computed again");
    }
}

#[test]
fn an_interrupted_batch_says_how_to_go_on() {
    let fixture = Fixture::new();
    fixture.requests(&(0..60).map(request).collect::<Vec<_>>());
    let mut child = fixture.command("out.jsonl").stderr(Stdio::piped()).spawn().unwrap();
    assert!(wait_for(&mut child, &fixture.path("out.jsonl.partial"), 5));
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("the same command goes on"), "{said}");
    succeeded(&fixture.command("out.jsonl").output().unwrap());
    assert_eq!(fixture.answers("out.jsonl").len(), 60);
}

/// The number of requests at a time follows from the plan, which says so before.
#[test]
fn plans_say_how_many_at_a_time_and_how_long() {
    let fixture = Fixture::new();
    let requests = fixture.requests(&(0..40).map(request).collect::<Vec<_>>());
    let plan = |requests: &str| {
        let model = bundled();
        let model = model.to_str().unwrap();
        let args = ["plan", model, "--ram-budget", "6MiB", "--json", "--requests", requests];
        crate::common::json(&terrace().args(args).output().unwrap())
    };
    let batches = &plan(requests.to_str().unwrap())["batches"];
    let compared = batches["compared"].as_array().unwrap();
    assert_eq!(batches["work"]["requests"], 40);
    let sequences = |batch: &Value| batch["sequences"].as_u64().unwrap();
    assert_eq!(compared.iter().map(sequences).collect::<Vec<_>>(), [1, 2, 4, 8, 16, 32, 40]);
    let read = |batch: &Value| batch["read_per_token"].as_u64().unwrap();
    assert!(read(&compared[5]) < read(&compared[0]) / 2, "{compared:?}");
    assert!(compared.iter().all(|batch| batch["seconds"].as_f64().unwrap() > 0.0));
    assert_eq!(plan("1000")["batches"]["work"]["requests"], 1000);
    let output = fixture.dir.path().join("planned.jsonl");
    let mut command = terrace();
    command.arg("batch").arg(bundled()).arg(&requests).arg("-o").arg(output);
    let output = command.args(["--ram-budget", "6MiB", "--temp", "0"]).output().unwrap();
    succeeded(&output);
    let at_a_time = format!("answering {} at a time", batches["sequences"]);
    assert!(stderr(&output).contains(&at_a_time), "{at_a_time}: {}", stderr(&output));
}
