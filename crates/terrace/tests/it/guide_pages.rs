//! The examples of the guide and the README, run as they are written: in a folder with the files that they name, made
//! from the bundled model. Servers and workers get free ports, and end with the page. Examples that need something
//! else have a comment before them, `<!-- not run: REASON -->`, or, for lines that begin with a text,
//! `` <!-- not run: `TEXT`: REASON --> ``.

use crate::common::{bundled, run, stderr, terrace};
use crate::server::TEST_TIMEOUT;
use crate::stand_in::{Behaviour, REPO, StandIn};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_testkit::released::Released;
use terrace_testkit::{AdapterSpec, Arch, ProjectorKind, ProjectorSpec, Spec, picture};

/// Pages that are run here; those of `jobs/` are run by `guide_jobs`.
const PAGES: &[&str] = &[
    "README.md",
    "docs/guide/devices.md",
    "docs/guide/from-gguf-tool-suite.md",
    "docs/guide/images.md",
    "docs/guide/install.md",
    "docs/guide/memory.md",
    "docs/guide/models.md",
    "docs/guide/plan.md",
    "docs/guide/quality.md",
    "docs/guide/run.md",
    "docs/guide/serve.md",
    "docs/guide/workers.md",
];

/// Languages of blocks that are no commands: configuration, what commands print, and calls of clients' libraries, which
/// the tests of clients make.
const OTHERS: [&str; 5] = ["text", "toml", "json", "yaml", "python"];

/// Begins a mark.
const NOT_RUN: &str = "<!-- not run: ";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A block between fences.
struct Block {
    language: String,
    text: String,
    /// Beginnings of lines that are not run; an empty one stands for all.
    not_run: Vec<String>,
}

impl Block {
    /// The commands to run, each with the lines that continue it.
    fn commands(&self) -> Vec<String> {
        let mut commands = Vec::<String>::new();
        for line in self.text.lines() {
            match commands.last_mut() {
                Some(last) if last.ends_with("\\\n") || line.starts_with(' ') => {
                    *last += &format!("{line}\n")
                }
                _ => commands.push(format!("{line}\n")),
            }
        }
        commands.retain(|command| !self.not_run.iter().any(|begin| command.starts_with(begin.as_str())));
        commands
    }
}

/// The blocks of a page.
fn blocks(page: &str) -> Vec<Block> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let (mut blocks, mut not_run, mut open) = (Vec::new(), Vec::new(), None::<Block>);
    for line in text.lines() {
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => block.text += &format!("{line}\n"),
            (None, Some(language)) => {
                let not_run = std::mem::take(&mut not_run);
                open = Some(Block { language: language.into(), text: String::new(), not_run });
            }
            (None, None) => match line.strip_prefix(NOT_RUN).and_then(|rest| rest.strip_suffix(" -->")) {
                Some(mark) => {
                    not_run.push(match mark.strip_prefix('`').and_then(|mark| mark.split_once("`: ")) {
                        Some((begin, _)) => begin.to_owned(),
                        None => String::new(),
                    })
                }
                None if line.is_empty() => {}
                None => assert!(not_run.is_empty(), "{page}: no block follows a mark before `{line}`"),
            },
        }
    }
    blocks
}

/// A process that ends with its page.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// A folder in which a page's commands run.
struct Folder {
    dir: TempDir,
    /// Of the server, and of the worker.
    ports: [u16; 2],
    hub: StandIn,
}

impl Folder {
    fn new(page: &str) -> Self {
        let free = |_| TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let hub = StandIn::new(&[("file.gguf", fs::read(bundled()).unwrap())], Behaviour::default());
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let folder = Self { dir, ports: [0, 0].map(free), hub };
        let text: String = blocks(page).iter().flat_map(Block::commands).collect();
        let is_part = |c: char| c.is_alphanumeric() || "._-/".contains(c);
        for name in folder.adapted(&text).split(|c| !is_part(c)).filter(|name| name.contains('.')) {
            if !folder.path(name).exists() {
                folder.provide(page, name.trim_end_matches('.'));
            }
        }
        // `git diff | terrace run ...`
        fs::create_dir(folder.path("bin")).unwrap();
        let git = folder.path("bin/git");
        fs::write(&git, "#!/bin/sh\necho '+let there be light'\n").unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&git, executable).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes a file that commands read, if it is one.
    fn provide(&self, page: &str, name: &str) {
        let path = self.path(name);
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let copy = |from: PathBuf| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::copy(from, &path).unwrap();
        };
        let made = match name {
            // Projectors belong to models of their own.
            "model.gguf" if page.ends_with("images.md") => {
                terrace_testkit::write(&Spec::new(Arch::Llama), &path).unwrap();
                let width = u64::from(Spec::new(Arch::Llama).embd);
                let spec = ProjectorSpec { kind: ProjectorKind::Gemma3, width, seed: 3 };
                terrace_testkit::write_projector(&spec, self.path("mmproj.gguf")).unwrap();
                return;
            }
            "model.gguf"
            | "q4.gguf"
            | "q4_K.gguf"
            | "tiny-moe-Q4_K.gguf"
            | "llama-70b-Q4_K_M.gguf"
            | "llama-1b-Q8_0.gguf"
            | "fast/model.gguf"
            | "other/model.gguf" => return copy(bundled()),
            "f16.gguf" => {
                let (from, to) = (bundled(), path.to_str().unwrap());
                run(["quantize", from.to_str().unwrap(), to, "--type", "F16", "--allow-requantize"])
            }
            "poems.gguf" | "letters.gguf" => {
                let weights = &["blk.0.ffn_up_exps.weight", "blk.1.attn_q.weight"];
                let spec = AdapterSpec { weights, ..AdapterSpec::default() };
                terrace_testkit::write_adapter(&spec, &bundled(), &path).unwrap();
                return;
            }
            "bge-reranker.gguf" => {
                return Released::new("bert", false).unwrap().write(&path, 1, None).unwrap();
            }
            // As short as measurements of a text may be: some of them are repeated for every tensor.
            "text.txt" if page.ends_with("quality.md") => {
                let text = fs::read_to_string(root().join("models/sample.kjv.txt")).unwrap();
                return fs::write(&path, &text[..text.floor_char_boundary(5000)]).unwrap();
            }
            "text.txt" | "code.txt" => return copy(root().join("models/sample.kjv.txt")),
            "prompt.txt" => return fs::write(&path, "In the beginning God created").unwrap(),
            "tasks.txt" => {
                let task = |ending: &str| format!("In the beginning\n0\nGod created\n{ending}\nx\ny\n");
                return fs::write(&path, ["a", "b", "c"].map(task).concat()).unwrap();
            }
            "photo.jpg" => return fs::write(&path, picture(64, 40, 1)).unwrap(),
            "cert.pem" => return copy(data.join("data/tls/first.pem")),
            "key.pem" => {
                fs::write(self.path("keys"), "secret\n").unwrap();
                return copy(data.join("data/tls/first.key.pem"));
            }
            "worker.json" => return copy(data.join("machines/desktop-64-gpu-24.json")),
            _ => return,
        };
        assert!(made.status.success(), "{name}: {}", stderr(&made));
    }

    /// A text of the page with this folder's names and ports.
    fn adapted(&self, text: &str) -> String {
        let [server, worker] = self.ports;
        let text = text
            .replace("hf:owner/repo:", &format!("hf:{REPO}:"))
            .replace("~/models", "models")
            .replace("target/release/terrace ", "terrace ")
            .replace(" /fast/", " fast/")
            .replace(" /other/", " other/")
            .replace("192.0.2.7:", "127.0.0.1:")
            .replace(":50052", &format!(":{worker}"));
        text.replace(":8080", &format!(":{server}"))
    }

    /// A shell here, with the same environment as the program's other tests.
    fn shell(&self, script: &str) -> Command {
        let program = terrace();
        let mut shell = Command::new("sh");
        let folder = Path::new(program.get_program()).parent().unwrap();
        let path = std::env::join_paths(
            [self.path("bin"), folder.to_owned()]
                .into_iter()
                .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
        );
        for (key, value) in program.get_envs() {
            match value {
                Some(value) => shell.env(key, value),
                None => shell.env_remove(key),
            };
        }
        let [server, worker] = self.ports.map(|port| port.to_string());
        shell
            .args(["-e", "-c", &self.adapted(script)])
            .current_dir(self.dir.path())
            .env("PATH", path.unwrap())
            .env("TERRACE_PORT", server)
            .env("TERRACE_WORKER_LISTEN", worker)
            .env("HF_ENDPOINT", &self.hub.endpoint)
            .env("HF_HUB_CACHE", self.path("hub"))
            .stdin(Stdio::null());
        if script.contains("--chat") && !script.contains(" -p ") {
            // In place of someone who types.
            let question = self.path("question");
            fs::write(&question, "Hello\n").unwrap();
            shell.stdin(fs::File::open(question).unwrap());
        }
        shell
    }

    /// Starts a server or a worker, and waits until it listens.
    fn start(&self, line: &str) -> Running {
        let port = self.ports[usize::from(line.starts_with("terrace worker"))];
        let listens = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        let deadline = Instant::now() + TEST_TIMEOUT;
        let mut running = Running(self.shell(&format!("exec {line}")).spawn().unwrap());
        while !listens() {
            assert!(Instant::now() < deadline, "{line}: it does not listen");
            assert!(running.0.try_wait().unwrap().is_none(), "{line}: it ended");
            std::thread::sleep(Duration::from_millis(20));
        }
        running
    }
}

/// Runs a page. Returns what its commands printed.
///
/// `None` without curl, if the page needs it.
pub fn run_page(page: &str) -> Option<String> {
    let blocks: Vec<Vec<String>> =
        blocks(page).iter().filter(|block| block.language == "sh").map(Block::commands).collect();
    let needs_curl = blocks.iter().flatten().any(|command| command.contains("curl"));
    if needs_curl && Command::new("curl").arg("--version").output().is_err() {
        eprintln!("skipped: no curl");
        return None;
    }
    let folder = Folder::new(page);
    if page.ends_with("models.md") {
        fs::create_dir(folder.path("models")).unwrap();
        fs::copy(bundled(), folder.path("models/qwen3-30b-Q4_K_M.gguf")).unwrap();
    }
    let (mut printed, mut server, mut worker) = (String::new(), None, None);
    for commands in &blocks {
        let mut serves = page.contains("/jobs/");
        for command in commands {
            let uses_worker = command.contains("192.0.2.7") && worker.is_none();
            if command.starts_with("terrace worker") || uses_worker {
                worker = Some(folder.start("terrace worker"));
            }
            if command.starts_with("terrace worker") {
                continue;
            }
            // A block that does not start a server means one that runs; that of another block may have other options.
            if command.starts_with("curl") && !serves {
                drop(server.take());
                server = Some(folder.start("terrace serve model.gguf"));
                serves = true;
            }
            if command.starts_with("terrace serve") {
                drop(server.take());
                server = Some(folder.start(command));
                serves = true;
                continue;
            }
            // The server listens before its model is loaded.
            let command = command.replace("curl -s ", "curl ");
            let command = command.replace("curl ", "curl -s --fail --retry 60 --retry-delay 1 ");
            let output = folder.shell(&command).output().unwrap();
            assert!(output.status.success(), "{page}: {command}\n{}", stderr(&output));
            printed += &String::from_utf8_lossy(&output.stdout);
        }
    }
    drop((server, worker));
    Some(printed)
}

/// The pages of a folder, and of folders in it.
fn pages(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned());
        }
    }
}

/// Whoever adds an example adds its page here, or says why it is not run.
#[test]
fn every_example_is_run_or_says_why_not() {
    let mut all = vec!["README.md".to_owned()];
    pages(&root().join("docs/guide"), &mut all);
    assert!(all.len() > 20, "{all:?}");
    for page in all {
        let blocks = blocks(&page);
        for Block { language, text, not_run } in &blocks {
            assert!(language == "sh" || OTHERS.contains(&language.as_str()), "{page}: `{language}`: {text}");
            let is_used = |begin: &String| text.lines().any(|line| line.starts_with(begin.as_str()));
            assert!(not_run.iter().all(is_used), "{page}: {not_run:?} marks no line of {text}");
        }
        let runs = blocks.iter().any(|block| block.language == "sh" && !block.commands().is_empty());
        let is_job = page.starts_with("docs/guide/jobs/");
        assert_eq!(runs, is_job || PAGES.contains(&page.as_str()), "{page}");
    }
}

macro_rules! pages {
    ($($name:ident: $page:literal, $printed:literal;)*) => {
        $(
            #[test]
            fn $name() {
                let Some(printed) = run_page($page) else { return };
                assert!(printed.contains($printed), "{printed}");
            }
        )*

        #[test]
        fn every_page_has_a_test() {
            let mut tested = [$($page),*];
            tested.sort_unstable();
            assert_eq!(tested, PAGES);
        }
    };
}

pages! {
    the_readme: "README.md", "terrace / stock";
    devices: "docs/guide/devices.md", "";
    recipes: "docs/guide/from-gguf-tool-suite.md", "";
    images: "docs/guide/images.md", "";
    installing: "docs/guide/install.md", "";
    memory: "docs/guide/memory.md", "";
    several_models: "docs/guide/models.md", "\"chat.completion\"";
    plans: "docs/guide/plan.md", "blk.0.ffn_down_exps.weight";
    quality: "docs/guide/quality.md", "";
    running: "docs/guide/run.md", "";
    serving: "docs/guide/serve.md", "\"embedding\"";
    workers: "docs/guide/workers.md", "";
}
