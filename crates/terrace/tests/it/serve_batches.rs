//! Batches of a server's clients: files, status, what survives a restart, and who comes first.

use crate::common::bundled;
use crate::server::{Server, golden};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// Slots of 256 tokens, and batches in `dir`.
fn start(dir: &Path, slots: &str) -> Server {
    let dir = dir.join("batches");
    let args = ["--ctx", "256", "--parallel", slots, "--temp", "0", "--batch-dir", dir.to_str().unwrap()];
    Server::start(&bundled(), args)
}

fn upload(server: &Server, purpose: &str, content: &str) -> crate::server::Reply {
    let body = format!(
        "--XX\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n{purpose}\r\n--XX\r\n\
         Content-Disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n{content}\r\n--XX--\r\n"
    );
    server.request("POST", "/v1/files", &[("content-type", "multipart/form-data; boundary=XX")], &body)
}

fn request(id: usize, prompt: &str, tokens: usize) -> String {
    let body = json!({"prompt": prompt, "max_tokens": tokens});
    json!({"custom_id": id.to_string(), "method": "POST", "url": "/v1/completions", "body": body}).to_string()
}

/// Uploads requests, and begins a batch of them.
fn begin(server: &Server, requests: &[String]) -> String {
    let file = upload(server, "batch", &(requests.join("\n") + "\n")).ok();
    let asked = json!({
        "input_file_id": file["id"],
        "endpoint": "/v1/completions",
        "completion_window": "24h",
        "metadata": {"for": "a test"},
    });
    server.post("/v1/batches", &asked).ok()["id"].as_str().unwrap().to_owned()
}

fn status(server: &Server, id: &str) -> Value {
    server.get(&format!("/v1/batches/{id}")).ok()
}

fn wait(server: &Server, id: &str, until: impl Fn(&Value) -> bool) -> Value {
    let begin = Instant::now();
    loop {
        let batch = status(server, id);
        if until(&batch) {
            return batch;
        }
        assert!(begin.elapsed() < Duration::from_secs(300), "{batch}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The lines of a file of answers.
fn lines(server: &Server, file: &Value) -> Vec<Value> {
    let reply = server.get(&format!("/v1/files/{}/content", file.as_str().unwrap()));
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_batch_is_answered_as_its_requests_are() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), "3");
    let mut requests: Vec<String> =
        (0..7).map(|id| request(id, &format!("And God said unto {id}"), 5 + id)).collect();
    requests.push(request(7, &"word ".repeat(1000), 5));
    let id = begin(&server, &requests);
    let batch = wait(&server, &id, |batch| batch["status"] == "completed");
    assert_eq!(batch["request_counts"], json!({"total": 8, "completed": 7, "failed": 1}));
    assert_eq!((&batch["object"], &batch["metadata"]["for"]), (&json!("batch"), &json!("a test")));
    assert!(batch["completed_at"].as_u64() >= batch["created_at"].as_u64());
    for (id, line) in lines(&server, &batch["output_file_id"]).iter().enumerate() {
        assert_eq!((&line["custom_id"], &line["error"]), (&json!(id.to_string()), &Value::Null));
        let text = &line["response"]["body"]["choices"][0]["text"];
        assert_eq!(*text, golden(&format!("And God said unto {id}"), 5 + id), "{id}");
    }
    let failed = lines(&server, &batch["error_file_id"]);
    assert_eq!((failed.len(), &failed[0]["response"]["status_code"]), (1, &json!(400)));
    // Lists, and what can be deleted.
    let files = server.get("/v1/files?limit=2").ok();
    assert_eq!((files["data"].as_array().unwrap().len(), &files["has_more"]), (2, &json!(true)));
    let rest = server.get(&format!("/v1/files?after={}", files["last_id"].as_str().unwrap())).ok();
    assert_eq!((rest["data"].as_array().unwrap().len(), &rest["has_more"]), (1, &json!(false)));
    assert_eq!(server.get("/v1/files?purpose=batch").ok()["data"][0]["id"], batch["input_file_id"]);
    assert_eq!(server.get("/v1/batches").ok()["data"][0]["id"], batch["id"]);
    let path = format!("/v1/files/{}", batch["input_file_id"].as_str().unwrap());
    assert_eq!(server.request("DELETE", &path, &[], "").ok()["deleted"], true);
    server.get(&path).error(404);
    server.get(&format!("{path}/content")).error(404);
    server.post(&format!("/v1/batches/{id}/cancel"), &json!({})).error(409);
}

#[test]
fn what_is_wrong_is_said_before_a_batch_begins() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), "1");
    assert_eq!(upload(&server, "fine-tune", "x").error(400)["param"], "purpose");
    let asked = |file: &str, endpoint: &str| {
        let asked = json!({"input_file_id": file, "endpoint": endpoint, "completion_window": "24h"});
        server.post("/v1/batches", &asked)
    };
    asked("file-nothing", "/v1/completions").error(404);
    assert_eq!(asked("../x", "/v1/models").error(400)["param"], "endpoint");
    for id in ["nothing", "..%2f..%2fetc"] {
        server.get(&format!("/v1/batches/{id}")).error(404);
        server.get(&format!("/v1/files/{id}/content")).error(404);
        server.request("DELETE", &format!("/v1/files/{id}"), &[], "").error(404);
    }
    let id = begin(&server, &[request(1, "x", 1), "nonsense".into(), request(1, "x", 1)]);
    let batch = wait(&server, &id, |batch| batch["status"] == "failed");
    let errors: Vec<_> =
        batch["errors"]["data"].as_array().unwrap().iter().map(|e| (&e["line"], &e["code"])).collect();
    assert_eq!(
        errors,
        [(&json!(2), &json!("invalid_json_line")), (&json!(3), &json!("duplicate_custom_id"))]
    );
    let without = Server::start(&bundled(), ["--ctx", "256"]);
    for path in ["/v1/files", "/v1/batches", "/v1/files/x", "/v1/batches/x"] {
        assert_eq!(without.get(path).error(501)["code"], "no_batch_dir", "{path}");
    }
}

#[test]
fn batches_go_on_after_a_restart_and_can_be_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), "2");
    let requests: Vec<String> = (0..40).map(|id| request(id, &format!("And {id}"), 40)).collect();
    let id = begin(&server, &requests);
    let done = |batch: &Value| batch["request_counts"]["completed"].as_u64().unwrap();
    let file = wait(&server, &id, |batch| done(batch) >= 3)["input_file_id"].clone();
    let path = format!("/v1/files/{}", file.as_str().unwrap());
    server.request("DELETE", &path, &[], "").error(409);
    server.signal("-KILL");
    server.ended();
    let server = start(dir.path(), "2");
    let batch = wait(&server, &id, |batch| batch["status"] == "completed");
    assert_eq!(done(&batch), 40);
    let answers = lines(&server, &batch["output_file_id"]);
    for (id, line) in answers.iter().enumerate() {
        assert_eq!(line["custom_id"], id.to_string());
    }
    assert_eq!(answers[39]["response"]["body"]["choices"][0]["text"], golden("And 39", 40));
    // Cancelled in its midst, it has what was answered; stopped in the orderly way, it goes on.
    let second = begin(&server, &requests);
    wait(&server, &second, |batch| done(batch) >= 2);
    server.signal("-TERM");
    assert!(server.ended().0.success());
    let server = start(dir.path(), "2");
    wait(&server, &second, |batch| done(batch) >= 3);
    let cancelled = server.post(&format!("/v1/batches/{second}/cancel"), &json!({})).ok();
    assert_eq!(cancelled["status"], "cancelling");
    let batch = wait(&server, &second, |batch| batch["status"] == "cancelled");
    assert_eq!(lines(&server, &batch["output_file_id"]).len() as u64, done(&batch));
    assert!(done(&batch) < 40 && batch["cancelled_at"].is_u64());
}

/// A client has its answer in about the time that it takes alone, though a batch has the only slot.
#[test]
fn clients_come_first() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), "1");
    let id = begin(&server, &(0..6).map(|id| request(id, "And", 200)).collect::<Vec<_>>());
    wait(&server, &id, |_| server.processing() == 1);
    for n in 0..3 {
        let asked = json!({"prompt": format!("In the {n}"), "max_tokens": 5});
        let text = server.post("/v1/completions", &asked).ok()["choices"][0]["text"].clone();
        assert_eq!(text, golden(&format!("In the {n}"), 5));
        let batch = status(&server, &id);
        assert_ne!(batch["status"], "completed", "the batch came first: {batch}");
    }
    let batch = wait(&server, &id, |batch| batch["status"] == "completed");
    let answers = lines(&server, &batch["output_file_id"]);
    let expected = golden("And", 200);
    assert!(answers.iter().all(|line| line["response"]["body"]["choices"][0]["text"] == expected));
    assert_eq!(answers.len(), 6);
}
