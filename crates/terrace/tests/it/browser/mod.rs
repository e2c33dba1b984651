//! The server's page in a real browser, driven: only where Chromium is installed.

mod chat;
mod defects;
mod devtools;
mod files;
mod filling;
mod formulas;
mod keys;
mod pictures;
mod tiers;
mod transfer;

use crate::common::bundled;
use crate::server::Server;
use devtools::{Browser, installed};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Says that a test needs a browser.
fn skipped() {
    eprintln!("skipped: no Chromium (`apt-get install chromium-headless-shell`)");
}

/// A page of a server, which it knows.
struct Page {
    browser: Browser,
    downloads: TempDir,
}

/// A page of a server with the bundled model, of this width, where the test answers in the model's place.
fn scripted_page(width: u32) -> Option<(Server, Page)> {
    let server = Server::start(&bundled(), ["--ctx", "256"]);
    let mut page = Page::open(&server, width, 800)?;
    page.scripted();
    Some((server, page))
}

impl Page {
    /// Opens it where there is a browser.
    fn open(server: &Server, width: u32, height: u32) -> Option<Self> {
        let Some(program) = installed() else {
            skipped();
            return None;
        };
        let downloads = tempfile::tempdir().unwrap();
        let mut browser = Browser::open(&program, &server.url("/"), downloads.path());
        browser.show(width, height, false);
        browser.wait_for("modules.server.server.state !== 'connecting'");
        Some(Self { browser, downloads })
    }

    /// Has the test answer in the model's place.
    fn scripted(&mut self) {
        self.browser.wait_for("at('state').className === 'up'");
        self.browser.value("script()");
    }

    /// Answers a message as a whole.
    #[track_caller]
    fn answer_scripted(&mut self, text: &str) {
        self.browser.value(&format!("say({}); finish()", json!(text)));
        self.wait_for_end();
    }

    /// Writes a message, and sends it with Enter.
    #[track_caller]
    fn ask(&mut self, text: &str) {
        let before = self.browser.value("document.querySelectorAll('.turn').length");
        self.browser.value("at('text').focus()");
        self.browser.write(text);
        self.browser.press("Enter", 13);
        self.browser.wait_for(&format!("document.querySelectorAll('.turn').length >= {before} + 2"));
    }

    /// Writes a message, and has the test's request at hand.
    #[track_caller]
    fn ask_scripted(&mut self, text: &str) -> Value {
        self.browser.value("window.sent = null");
        self.ask(text);
        self.browser.wait_for("window.sent !== null");
        self.browser.value("sent")
    }

    /// Waits until nothing is being answered.
    #[track_caller]
    fn wait_for_end(&mut self) {
        self.browser.wait_for("at('stop').hidden && !document.querySelector('.turn.running')");
    }
}

/// Nothing is wider than the page, and nothing scrolls sideways that is not meant to.
#[track_caller]
fn check_sizes(page: &mut Browser) {
    for (width, height) in [(390, 844), (1100, 800), (1920, 1080), (2560, 1440)] {
        for dark in [false, true] {
            page.show(width, height, dark);
            let wide = page.value("document.documentElement.scrollWidth");
            assert!(wide.as_u64().unwrap() <= u64::from(width), "{wide} of {width}");
            let high = page.value("document.documentElement.scrollHeight");
            assert!(high.as_u64().unwrap() <= u64::from(height), "{high} of {height}");
            let boxes = "[...document.querySelectorAll('.wide, #frame, #talk, #list, #tiers')]";
            let fits = page.value(&format!("{boxes}.every((box) => box.scrollWidth <= box.clientWidth)"));
            assert_eq!(fits, true, "at a width of {width}");
            assert_eq!(page.value("inView('#state')"), true, "at a width of {width}");
        }
    }
}
