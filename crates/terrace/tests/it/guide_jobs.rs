//! The commands of the guide's first pages, run as they are written: in a folder with `model.gguf`, the bundled
//! model, and `text.txt`. Servers get a free port in place of 8080, and end with the page.

use crate::common::{bundled, terrace};
use crate::server::TEST_TIMEOUT;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The scripts of a page.
fn scripts(page: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/jobs").join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let blocks = text.split("```sh\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

/// A shell in the folder of a page, with the same environment as the program's other tests.
fn shell(dir: &Path, script: &str) -> Command {
    let program = terrace();
    let mut shell = Command::new("sh");
    let folder = Path::new(program.get_program()).parent().unwrap();
    let path = std::env::join_paths(
        std::iter::once(folder.to_owned())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    for (key, value) in program.get_envs() {
        match value {
            Some(value) => shell.env(key, value),
            None => shell.env_remove(key),
        };
    }
    shell.args(["-e", "-c", script]).current_dir(dir).env("PATH", path.unwrap()).stdin(Stdio::null());
    shell
}

/// A server that ends with its page.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn serve(dir: &Path, line: &str, port: u16) -> Serving {
    let server = shell(dir, &format!("exec {line}")).env("TERRACE_PORT", port.to_string()).spawn().unwrap();
    let begin = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(begin.elapsed() < TEST_TIMEOUT, "{line}: it does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    Serving(server)
}

/// Runs a page. Returns what its commands printed.
///
/// `None` without curl, if the page needs it.
fn run_page(page: &str) -> Option<String> {
    let needs_curl = scripts(page).iter().any(|script| script.contains("curl"));
    if needs_curl && Command::new("curl").arg("--version").output().is_err() {
        eprintln!("skipped: no curl");
        return None;
    }
    let dir = TempDir::new().unwrap();
    std::fs::copy(bundled(), dir.path().join("model.gguf")).unwrap();
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/sample.kjv.txt");
    std::fs::copy(text, dir.path().join("text.txt")).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (mut server, mut printed, mut commands) = (None, String::new(), 0);
    for script in scripts(page) {
        let mut rest = String::new();
        for line in script.lines() {
            if line.starts_with("terrace serve") {
                server = Some(serve(dir.path(), line, port));
            } else {
                rest += &format!("{line}\n");
            }
            commands += usize::from(!line.starts_with(' '));
        }
        // The server listens before its model is loaded.
        let rest = rest.replace("curl -s", "curl -s --fail --retry 60 --retry-delay 1");
        let output = shell(dir.path(), &rest.replace(":8080", &format!(":{port}"))).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{page}: {script}\n{error}");
        printed += &String::from_utf8_lossy(&output.stdout);
    }
    drop(server);
    assert!(commands >= 2, "{page} has commands");
    Some(printed)
}

#[test]
fn a_large_model_on_32_gb() {
    assert!(run_page("big-moe.md").unwrap().contains("layers"));
}

#[test]
fn how_fast_it_would_be() {
    let printed = run_page("how-fast.md").unwrap();
    assert!(printed.contains("Qwen3-235B-A22B") && printed.contains("terrace / stock"), "{printed}");
}

#[test]
fn an_ide_is_served() {
    let Some(printed) = run_page("serve-an-ide.md") else { return };
    assert!(printed.contains("\"chat.completion\""), "{printed}");
}

#[test]
fn scripts_of_llama_server_run() {
    let Some(printed) = run_page("from-llama-server.md") else { return };
    assert!(
        printed.contains("Final estimate: PPL") && printed.contains("\"default_generation_settings\""),
        "{printed}"
    );
}

#[test]
fn a_model_is_quantised_to_fit() {
    let printed = run_page("quantise-to-fit.md").unwrap();
    assert!(printed.contains("mean error of the matrices") && printed.contains("written in"), "{printed}");
}
