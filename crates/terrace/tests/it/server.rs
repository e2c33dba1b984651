//! Starts `terrace serve`, and sends requests.

use crate::common::{bundled, json as json_of, run, terrace};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Time after which a step counts as hanging.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(300);

/// A running server.
pub struct Server {
    child: Child,
    /// `127.0.0.1:PORT`.
    pub address: String,
    stderr: Option<ChildStderr>,
    /// The process that has the engine, of which memory, threads and descriptors are told.
    engine: u32,
}

/// A response.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: ureq::http::HeaderMap,
    pub text: String,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    /// The body of a successful response.
    #[track_caller]
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text);
        self.json()
    }

    /// The error of a failed request, which must have OpenAI's form.
    #[track_caller]
    pub fn error(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        let error = self.json()["error"].clone();
        assert!(error["message"].is_string() && error["type"].is_string(), "{error}");
        assert!(error.get("param").is_some() && error.get("code").is_some(), "{error}");
        error
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The events of a stream, which must end with `[DONE]`.
    #[track_caller]
    pub fn events(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.text);
        assert_eq!(self.header("content-type"), "text/event-stream");
        let mut data: Vec<&str> = self.text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!(data.pop(), Some("[DONE]"), "{}", self.text);
        data.into_iter().map(|text| serde_json::from_str(text).unwrap()).collect()
    }
}

/// The text of a stream of completions.
pub fn streamed_text(events: &[Value]) -> String {
    let piece = |event: &Value| {
        let choice = &event["choices"][0];
        let text = choice["text"].as_str().or(choice["delta"]["content"].as_str());
        text.unwrap_or_default().to_owned()
    };
    events.iter().map(piece).collect()
}

/// The greedy text of the bundled model, from `terrace run`.
pub fn golden(prompt: &str, tokens: usize) -> String {
    golden_of(&bundled(), prompt, tokens)
}

/// The greedy text of a model, from `terrace run`.
pub fn golden_of(model: &Path, prompt: &str, tokens: usize) -> String {
    let tokens = tokens.to_string();
    let args = ["--temp", "0", "--threads", "1", "--json", "-n", &tokens, "-p", prompt];
    let report = json_of(&run(["run", model.to_str().unwrap()].iter().chain(&args)));
    report["text"].as_str().unwrap().to_owned()
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(TEST_TIMEOUT));
    config.build().new_agent()
}

impl Server {
    pub fn start<S: AsRef<OsStr>>(model: &Path, args: impl IntoIterator<Item = S>) -> Self {
        Self::start_with(model, args, |command| command)
    }

    /// Starts a server at the port that another one has left.
    pub fn start_at<S: AsRef<OsStr>>(port: &str, model: &Path, args: impl IntoIterator<Item = S>) -> Self {
        Self::start_port(port, model, args, |command| command)
    }

    /// Starts a server; `adjust` can change the command last.
    pub fn start_with<S: AsRef<OsStr>>(
        model: &Path,
        args: impl IntoIterator<Item = S>,
        adjust: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Self {
        Self::start_port("0", model, args, adjust)
    }

    fn start_port<S: AsRef<OsStr>>(
        port: &str,
        model: &Path,
        args: impl IntoIterator<Item = S>,
        adjust: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Self {
        let mut command = terrace();
        command.arg("serve").arg(model).args(args).stderr(Stdio::piped());
        command.env_remove("LLAMA_HOTSWAP_ENABLED");
        let this = Self::spawn(adjust(&mut command), port, "http");
        this.wait_for(|server| server.get("/health").status == 200);
        this
    }

    /// Starts a server of several models.
    pub fn start_models<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Self {
        Self::spawn(terrace().arg("serve").args(args).stderr(Stdio::piped()), "0", "http")
    }

    /// Starts a server that answers over TLS, and does not wait until it is ready.
    pub fn start_secured<S: AsRef<OsStr>>(model: &Path, args: impl IntoIterator<Item = S>) -> Self {
        Self::spawn(terrace().arg("serve").arg(model).args(args).stderr(Stdio::piped()), "0", "https")
    }

    fn spawn(command: &mut Command, port: &str, scheme: &str) -> Self {
        command.args(["--port", port, "--threads", "1", "--temp", "0"]);
        command.stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let stderr = child.stderr.take();
        let address = line.trim().strip_prefix(&format!("listening on {scheme}://"));
        let address = address.unwrap_or_else(|| panic!("`{line}`: {:?}", rest(stderr.as_ref()))).to_owned();
        let engine = child.id();
        Self { child, address, stderr, engine }
    }

    /// Tells memory, threads and descriptors of the process that was started for the engine, as there is one with RPC
    /// servers.
    pub fn follow_engine(&mut self) {
        let children = self.children();
        let [engine] = children[..] else { panic!("not one process for the engine: {children:?}") };
        self.engine = engine;
    }

    /// The server's text on stderr from now on. Whoever takes it has to read it.
    pub fn take_stderr(&mut self) -> ChildStderr {
        self.stderr.take().expect("it is taken once")
    }

    /// The numbers of the processes that the server has started itself.
    pub fn children(&self) -> Vec<u32> {
        let path = format!("/proc/{0}/task", self.child.id());
        let threads = std::fs::read_dir(path).unwrap().map(|thread| thread.unwrap().path().join("children"));
        let lists = threads.map(|list| std::fs::read_to_string(list).unwrap_or_default());
        lists
            .flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
            .collect()
    }

    /// Repeats until the condition holds.
    #[track_caller]
    pub fn wait_for(&self, holds: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !holds(self) {
            assert!(begin.elapsed() < TEST_TIMEOUT, "it does not come about");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn get(&self, path: &str) -> Reply {
        reply(agent().get(self.url(path)).call())
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.post_bytes(path, body.to_string().as_bytes())
    }

    pub fn post_bytes(&self, path: &str, body: &[u8]) -> Reply {
        reply(agent().post(self.url(path)).content_type("application/json").send(body))
    }

    pub fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut request = ureq::http::Request::builder().method(method).uri(self.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        reply(agent().run(request.body(body.to_owned()).unwrap()))
    }

    /// Sends a request, and returns the connection with its unread response.
    pub fn begin(&self, path: &str, body: &Value) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let body = body.to_string();
        let length = body.len();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        stream
    }

    /// Number of server slots that work.
    pub fn processing(&self) -> usize {
        let slots = self.get("/slots").ok();
        slots.as_array().unwrap().iter().filter(|slot| slot["is_processing"] == true).count()
    }

    /// Number of requests that wait for a server slot.
    pub fn waiting(&self) -> u64 {
        self.get("/health").ok()["waiting"].as_u64().unwrap()
    }

    /// The server's peak memory so far, in bytes.
    pub fn peak_memory(&self) -> u64 {
        self.status("VmHWM:").trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// The server's memory, in bytes.
    pub fn memory(&self) -> u64 {
        self.status("VmRSS:").trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// Number of the server's threads.
    pub fn threads(&self) -> usize {
        self.status("Threads:").parse().unwrap()
    }

    fn status(&self, name: &str) -> String {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.engine)).unwrap();
        status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
    }

    /// Number of the server's open files and connections.
    pub fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.engine)).unwrap().count()
    }

    /// A value of `/metrics`, by its name and labels.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").text;
        let line = text.lines().find(|line| line.rsplit_once(' ').is_some_and(|(start, _)| start == name));
        line.unwrap_or_else(|| panic!("{name}: {text}")).rsplit(' ').next().unwrap().parse().unwrap()
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for the server's end, and returns its status and its text on stderr.
    pub fn ended(mut self) -> (ExitStatus, String) {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begin.elapsed() < TEST_TIMEOUT, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        };
        (status, rest(self.stderr.as_ref()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rest(stderr: Option<&ChildStderr>) -> String {
    let mut text = Vec::new();
    let fd = stderr.map(|stderr| std::os::fd::AsFd::as_fd(stderr).try_clone_to_owned().unwrap());
    if let Some(fd) = fd {
        let _ = std::fs::File::from(fd).read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn reply(response: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Reply {
    let mut response = response.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let bytes = response.body_mut().read_to_vec().unwrap();
    Reply { status, headers, text: String::from_utf8(bytes).expect("answers are UTF-8") }
}
