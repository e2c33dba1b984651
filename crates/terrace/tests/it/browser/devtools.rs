//! A browser without a window, driven by the DevTools protocol over a pair of pipes.

use crate::server::TEST_TIMEOUT;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The names of programs that speak the protocol.
const NAMES: [&str; 5] =
    ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome-headless-shell"];

/// A browser with one page.
pub struct Browser {
    child: Child,
    to: File,
    messages: Receiver<Value>,
    calls: u64,
    session: Option<String>,
    /// Errors of the page's scripts, and what its policy has kept it from.
    pub errors: Vec<String>,
    _dir: TempDir,
}

/// The browser that is installed.
pub fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path).flat_map(|dir| NAMES.map(|name| dir.join(name)));
    found.into_iter().find(|program| program.is_file())
}

impl Browser {
    /// Opens a page. Files that it downloads go to `downloads`.
    pub fn open(program: &Path, url: &str, downloads: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pipes = ["to", "from"].map(|name| dir.path().join(name));
        assert!(Command::new("mkfifo").args(&pipes).status().unwrap().success());
        // It reads from descriptor 3 and writes to 4.
        let mut command = Command::new("sh");
        command.args(["-c", r#"to="$1" from="$2"; shift 2; exec "$@" 3<"$to" 4>"$from""#, "sh"]).args(&pipes);
        command.arg(program).arg(format!("--user-data-dir={}", dir.path().display())).args([
            "--headless",
            "--remote-debugging-pipe",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "about:blank",
        ]);
        let child =
            command.env("HOME", dir.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = child.spawn().unwrap();
        let to = OpenOptions::new().write(true).open(&pipes[0]).unwrap();
        let mut from = BufReader::new(File::open(&pipes[1]).unwrap());
        let (send, messages) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while from.read_until(0, &mut message).is_ok_and(|read| read > 1) {
                message.pop();
                if send.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let mut this = Self { child, to, messages, calls: 0, session: None, errors: Vec::new(), _dir: dir };
        this.call("Browser.setDownloadBehavior", json!({"behavior": "allow", "downloadPath": downloads}));
        let target = this.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached =
            this.call("Target.attachToTarget", json!({"targetId": target["targetId"], "flatten": true}));
        this.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        this.call("Runtime.enable", json!({}));
        this.call("Log.enable", json!({}));
        this.call("Page.enable", json!({}));
        this.call("Page.addScriptToEvaluateOnNewDocument", json!({"source": include_str!("helpers.js")}));
        this.call("Page.navigate", json!({"url": url}));
        this.wait_for("modules");
        this
    }

    /// Calls a method, and returns its result.
    #[track_caller]
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let mut message = json!({"id": self.calls, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let mut answer = self.messages.recv_timeout(TEST_TIMEOUT).expect("the browser answers");
            if answer["method"] == "Runtime.exceptionThrown" {
                self.errors.push(answer["params"].to_string());
            }
            let entry = &answer["params"]["entry"];
            if answer["method"] == "Log.entryAdded" && entry["source"] == "security" {
                self.errors.push(entry["text"].to_string());
            }
            if answer["id"] == self.calls {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].take();
            }
        }
    }

    /// The value of an expression of the page's script.
    #[track_caller]
    pub fn value(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.call("Runtime.evaluate", params);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {}", answer["exceptionDetails"]);
        answer["result"]["value"].take()
    }

    /// Repeats until an expression is true.
    #[track_caller]
    pub fn wait_for(&mut self, expression: &str) {
        let begin = Instant::now();
        // Before the page is there, names are missing.
        let guarded =
            format!("(() => {{ try {{ return Boolean({expression}); }} catch {{ return false; }} }})()");
        while self.value(&guarded) != true {
            assert!(begin.elapsed() < TEST_TIMEOUT, "{expression} does not come about: {:?}", self.errors);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Clicks an element, as a user does: only if it can be clicked.
    #[track_caller]
    pub fn click(&mut self, selector: &str) {
        self.wait_for(&format!("!document.querySelector('{selector}').disabled"));
        self.value(&format!("document.querySelector('{selector}').click()"));
    }

    /// Presses a key, by its name and its code in Windows.
    #[track_caller]
    pub fn press(&mut self, key: &str, code: u32) {
        self.press_with(key, code, 0);
    }

    /// Presses Enter while Shift is held.
    #[track_caller]
    pub fn press_shift_enter(&mut self) {
        self.press_with("Enter", 13, 8);
    }

    /// Presses a key, by its place on the keyboard, while Alt is held.
    #[track_caller]
    pub fn press_alt(&mut self, place: &str, code: u32) {
        self.press_with(place, code, 1);
    }

    fn press_with(&mut self, key: &str, code: u32, modifiers: u32) {
        let text = if key == "Enter" { "\r" } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let mut params =
                json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text});
            params["modifiers"] = modifiers.into();
            self.call("Input.dispatchKeyEvent", params);
        }
    }

    /// Types into what has the focus.
    #[track_caller]
    pub fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// Turns the mouse's wheel over an element; down is positive.
    #[track_caller]
    pub fn wheel(&mut self, selector: &str, by: i32) {
        let middle = self.value(&format!("middleOf('{selector}')"));
        let params = json!({"type": "mouseWheel", "x": middle[0], "y": middle[1], "deltaX": 0, "deltaY": by});
        self.call("Input.dispatchMouseEvent", params);
    }

    /// Loads the page again.
    pub fn reload(&mut self) {
        self.value("window.modules = null");
        self.call("Page.reload", json!({}));
        self.wait_for("modules");
    }

    /// Sets the size of the page, and whether its user prefers dark colours.
    pub fn show(&mut self, width: u32, height: u32, dark: bool) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500});
        self.call("Emulation.setDeviceMetricsOverride", size);
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
        // Scripts hear of a change of the window when it is drawn, which is after the browser has made it.
        self.wait_for(&format!("innerWidth === {width}"));
        self.value(
            "new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(() => drawn())))",
        );
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
