//! Images: `--mmproj` and `--image`, and what clients of a server send.

use crate::common::{failure, json as json_of, run, stderr};
use crate::server::{Server, streamed_text};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;
use terrace_testkit::{Arch, ProjectorKind, ProjectorSpec, Spec, picture, write_projector};

struct Files {
    dir: TempDir,
    model: PathBuf,
    projector: PathBuf,
}

impl Files {
    fn new(arch: Arch, kind: ProjectorKind) -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let spec = Spec::new(arch);
        let model = terrace_testkit::write(&spec, dir.path().join("model.gguf")).unwrap();
        let spec = ProjectorSpec { kind, width: u64::from(spec.embd), seed: 3 };
        let projector = write_projector(&spec, dir.path().join("mmproj.gguf")).unwrap();
        Self { dir, model, projector }
    }

    fn picture(&self, seed: u32) -> String {
        let path = self.dir.path().join(format!("{seed}.png"));
        fs::write(&path, picture(64, 40, seed)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn server(&self) -> Server {
        Server::start(&self.model, ["--ctx", "512", "--mmproj", self.projector.to_str().unwrap()])
    }

    /// The report of a greedy run.
    fn report(&self, args: &[&str]) -> Value {
        let (model, projector) = (self.model.to_str().unwrap(), self.projector.to_str().unwrap());
        let all = ["run", model, "--mmproj", projector, "--temp", "0", "--json", "-n", "8", "--ctx", "512"];
        json_of(&run(all.iter().chain(&["--threads", "1"]).chain(args)))
    }
}

/// Base64, as clients send it.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0, |bits: u32, &byte| bits << 8 | u32::from(byte));
        let bits = bits << (8 * (3 - group.len()));
        for digit in 0..4 {
            let index = (bits >> (18 - 6 * digit) & 63) as usize;
            text.push(if digit <= group.len() { char::from(DIGITS[index]) } else { '=' });
        }
    }
    text
}

const QUESTION: &str = "What is on the terrace?";

#[test]
fn runs_read_images_over_weights_that_stream() {
    let files = Files::new(Arch::Qwen3Moe, ProjectorKind::Mlp);
    let (one, other) = (files.picture(1), files.picture(2));
    let stock = files.report(&["-p", QUESTION, "--image", &one, "--stock"]);
    for args in [&["--stream", "none"][..], &["--stream", "experts", "--ram-budget", "8MiB"]] {
        let read = files.report(&[args, &["-p", QUESTION, "--image", &one]].concat());
        assert_eq!(read["tokens"], stock["tokens"], "{args:?}");
        let told = &read["plan"]["projector"];
        assert_eq!((&told["path"], &told["kind"]), (&json!(files.projector), &json!("mlp")));
        assert!(told["bytes"].as_u64().unwrap() > 100_000, "{told}");
    }
    let plain = files.report(&["-p", QUESTION]);
    // 8 x 8 patches.
    let counted = |report: &Value| report["prompt_tokens"].as_u64().unwrap();
    assert_eq!(counted(&stock), counted(&plain) + 64);
    assert!(files.report(&["-p", QUESTION, "--image", &other, "--stock"])["tokens"] != stock["tokens"]);
    // Markers say where images belong; without them, they come first.
    let marked = format!("<__media__>{QUESTION}");
    assert_eq!(files.report(&["-p", &marked, "--image", &one])["tokens"], stock["tokens"]);
    let both = files.report(&["-p", "a <__media__> b <__media__>", "--image", &format!("{one},{other}")]);
    let swapped = files.report(&["-p", "a <__media__> b <__media__>", "--image", &other, "--image", &one]);
    assert!(both["tokens"] != swapped["tokens"]);
    assert!(files.report(&["--chat", "-p", QUESTION, "--image", &one])["tokens"].is_array());
    let model = files.model.to_str().unwrap();
    let told = run(["run", model, "-v", "-p", "x", "-n", "1", "--mmproj", files.projector.to_str().unwrap()]);
    assert!(stderr(&told).contains("images by "), "{}", stderr(&told));
}

#[test]
fn what_is_no_image_or_projector_is_an_error_of_one_line() {
    let files = Files::new(Arch::Llama, ProjectorKind::Mlp);
    let (model, projector) = (files.model.to_str().unwrap(), files.projector.to_str().unwrap());
    let (good, text) = (files.picture(1), files.dir.path().join("a.txt"));
    fs::write(&text, "no image").unwrap();
    let text = text.to_str().unwrap();
    let started = |args: &[&str], status| {
        let output = run(["run", model, "-n", "1"].iter().chain(args));
        failure(&output, status)
    };
    let error = started(&["-p", "x", "--mmproj", projector, "--image", text], 2);
    assert!(error.contains("a.txt: it is not a PNG, JPEG, WebP, GIF or BMP image"), "{error}");
    let error = started(&["-p", "x", "--mmproj", projector, "--image", "missing.png"], 1);
    assert!(error.contains("missing.png"), "{error}");
    let error = started(&["-p", "x", "--image", &good], 2);
    assert!(error.contains("--mmproj"), "{error}");
    let marked = ["-p", "<__media__> <__media__>", "--mmproj", projector, "--image", &good];
    assert!(started(&marked, 2).contains("2 times"));
    let error = started(&["-p", "x", "--mmproj", model], 1);
    assert!(error.contains("is not a projector"), "{error}");
    let error = started(&["-p", "x", "--mmproj", projector, "--ram-budget", "4KiB"], 1);
    assert!(error.contains("the projector takes"), "{error}");
    let error = started(&["-p", "x", "--mmproj-url", "http://localhost/a"], 2);
    assert!(error.contains("loaded from files only"), "{error}");
}

#[test]
fn clients_send_images_in_the_forms_of_all_apis() {
    let files = Files::new(Arch::Qwen3Moe, ProjectorKind::Mlp);
    let server = files.server();
    let image = files.picture(1);
    let data = base64(&fs::read(&image).unwrap());
    let url = format!("data:image/png;base64,{data}");
    let expected = files.report(&["--chat", "-p", QUESTION, "--image", &image]);
    let other = files.report(&["--chat", "-p", QUESTION, "--image", &files.picture(2)]);
    assert!(expected["text"] != other["text"], "images matter");

    let part = json!({"type": "image_url", "image_url": {"url": url}});
    let messages = json!([{"role": "user", "content": [part, {"type": "text", "text": QUESTION}]}]);
    let body = json!({"messages": messages, "max_tokens": 8});
    let answer = server.post("/v1/chat/completions", &body).ok();
    assert_eq!(answer["choices"][0]["message"]["content"], expected["text"]);
    assert_eq!(answer["usage"]["prompt_tokens"], expected["prompt_tokens"]);
    let body = json!({"messages": messages, "max_tokens": 8, "stream": true});
    let events = server.post("/v1/chat/completions", &body).events();
    assert_eq!(streamed_text(&events), expected["text"].as_str().unwrap());

    let body = json!({"max_output_tokens": 8, "input": [{"role": "user", "content": [
        {"type": "input_image", "image_url": url}, {"type": "input_text", "text": QUESTION},
    ]}]});
    let answer = server.post("/v1/responses", &body).ok();
    assert_eq!(answer["output"][0]["content"][0]["text"], expected["text"]);

    let source = json!({"type": "base64", "media_type": "image/png", "data": data});
    let content = json!([{"type": "image", "source": source}, {"type": "text", "text": QUESTION}]);
    let body = json!({"max_tokens": 8, "messages": [{"role": "user", "content": content}]});
    let answer = server.post("/v1/messages", &body).ok();
    assert_eq!(answer["content"][0]["text"], expected["text"]);
    let counted = server.post("/v1/messages/count_tokens", &body).ok();
    assert_eq!(counted["input_tokens"], expected["prompt_tokens"]);

    let message = json!({"role": "user", "content": QUESTION, "images": [data]});
    let body = json!({"messages": [message], "stream": false, "options": {"num_predict": 8}});
    assert_eq!(server.post("/api/chat", &body).ok()["message"]["content"], expected["text"]);
    let body = json!({"prompt": QUESTION, "images": [data], "stream": false, "options": {"num_predict": 8}});
    assert_eq!(server.post("/api/generate", &body).ok()["response"], expected["text"]);

    let plain = files.report(&["-p", QUESTION, "--image", &image]);
    let prompt = json!({"prompt_string": format!("<__media__>{QUESTION}"), "multimodal_data": [data]});
    let answer = server.post("/completion", &json!({"prompt": prompt, "n_predict": 8})).ok();
    assert_eq!(answer["content"], plain["text"]);
    let body = json!({"prompt": QUESTION, "images": [data], "raw": true, "stream": false, "options": {"num_predict": 8}});
    assert_eq!(server.post("/api/generate", &body).ok()["response"], plain["text"]);

    let props = server.get("/props").ok();
    assert_eq!(props["modalities"], json!({"vision": true, "audio": false}));
    let shown = server.post("/api/show", &json!({"model": "model"})).ok();
    assert!(shown["capabilities"].as_array().unwrap().contains(&json!("vision")), "{shown}");
    let models = server.get("/v1/models").ok();
    let (shown, listed) = (shown["capabilities"].as_array().unwrap(), &models["data"][0]["capabilities"]);
    // The same, and llama-server's name of what sees.
    assert_eq!(*listed, Value::from([&shown[..], &[json!("multimodal")]].concat()));
}

/// A PNG whose header promises more pixels than are read.
fn bomb() -> Vec<u8> {
    let mut bytes = picture(1, 1, 1);
    bytes[16..20].copy_from_slice(&60_000_u32.to_be_bytes());
    bytes[20..24].copy_from_slice(&60_000_u32.to_be_bytes());
    // Of `IHDR`, with this size and the depth and colours of the picture.
    let mut crc = u32::MAX;
    for byte in &bytes[12..29] {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    bytes[29..33].copy_from_slice(&(!crc).to_be_bytes());
    bytes
}

#[test]
fn images_that_cannot_be_read_are_named_and_the_server_goes_on() {
    let files = Files::new(Arch::Llama, ProjectorKind::Gemma3);
    let server = files.server();
    let good = fs::read(files.picture(1)).unwrap();
    let ask = |url: String| {
        let part = json!({"type": "image_url", "image_url": {"url": url}});
        let messages = json!([{"role": "user", "content": [part, {"type": "text", "text": "Hi"}]}]);
        server.post("/v1/chat/completions", &json!({"messages": messages, "max_tokens": 2}))
    };
    let data = |bytes: &[u8]| format!("data:image/png;base64,{}", base64(bytes));
    ask(data(&good)).ok();
    for (url, part) in [
        ("data:image/png;base64,AAA!".to_owned(), "is not valid base64"),
        ("data:image/png,abc".to_owned(), "not in base64"),
        ("https://localhost/a.png".to_owned(), "reads images in `data:` URLs only"),
        ("file:///etc/passwd".to_owned(), "reads images in `data:` URLs only"),
        (data(&good[..good.len() / 2]), "image 1 cannot be read: it cannot be decoded"),
        (data(b"hello"), "image 1 cannot be read: it is not a PNG"),
        (data(&bomb()), "image 1 cannot be read: it has 60000 x 60000 pixels"),
    ] {
        let error = ask(url).error(400);
        let told = error["message"].as_str().unwrap();
        assert!(told.contains(part) && !told.contains('\n'), "{told}");
    }
    ask(data(&good)).ok();

    let without = Server::start(&files.model, ["--ctx", "256"]);
    let image = json!({"messages": [{"role": "user", "content": "Hi", "images": [base64(&good)]}]});
    let told = without.post("/api/chat", &image).text;
    assert!(told.contains("this server reads no images") && told.contains("--mmproj"), "{told}");
    assert_eq!(without.get("/props").ok()["modalities"]["vision"], json!(false));
}

/// A black BMP of one bit per pixel.
fn large(side: u32) -> Vec<u8> {
    let row = side.div_ceil(32) * 4;
    let (offset, pixels) = (62_u32, row * side);
    let mut bytes = b"BM".to_vec();
    for number in
        [offset + pixels, 0, offset, 40, side, side, 1 | 1 << 16, 0, pixels, 0, 0, 2, 2, 0, 0x00ff_ffff]
    {
        bytes.extend(number.to_le_bytes());
    }
    bytes.resize((offset + pixels) as usize, 0);
    bytes
}

#[test]
fn images_of_the_largest_size_take_bounded_memory() {
    let files = Files::new(Arch::Qwen3Moe, ProjectorKind::Mlp);
    let server = files.server();
    let chat = |image: &[u8]| {
        let url = format!("data:image/bmp;base64,{}", base64(image));
        let part = json!({"type": "image_url", "image_url": {"url": url}});
        let parts = json!([part, part, part, {"type": "text", "text": QUESTION}]);
        json!({"messages": [{"role": "user", "content": parts}], "max_tokens": 2})
    };
    server.post("/v1/chat/completions", &chat(&large(64))).ok();
    let before = server.peak_memory();
    let body = chat(&large(4096));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| server.post("/v1/chat/completions", &body).ok());
        }
    });
    let more = server.peak_memory() - before;
    // Two are decoded at once, 48 MiB each: as they are, and as llama.cpp's own; beside four requests.
    assert!(more < 400 << 20, "{} MiB", more >> 20);
    server.signal("-TERM");
    assert!(server.ended().0.success());
}
