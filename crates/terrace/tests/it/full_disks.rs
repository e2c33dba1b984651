//! Servers whose disks take nothing any more: they answer on.

use crate::common::bundled;
use crate::server::Server;
use rustix::process::{Resource, Rlimit, setrlimit};
use serde_json::json;
use std::os::unix::process::CommandExt;

#[test]
fn a_server_answers_on_when_none_of_its_files_can_be_written() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let folder = |name: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir(&path).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (kept, slots) = (folder("kept"), folder("slots"));
    let disk = format!("{kept}:100MiB");
    // The log is no file, and all else is longer than this.
    let args = ["--ctx", "512", "--cache-ram", "1MiB", "--cache-disk", &disk, "--slot-save-path", &slots];
    let server = Server::start_with(&bundled(), args, |command| {
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(|| {
                setrlimit(Resource::Fsize, Rlimit { current: Some(16), maximum: Some(16) })?;
                libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
                Ok(())
            })
        }
    });
    // Each displaces what the slot had, so that it would be kept: in RAM first, and then on disk.
    for word in ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"] {
        let body = json!({"prompt": format!("{word} ").repeat(100), "max_tokens": 2});
        server.post("/v1/completions", &body).ok();
    }
    let error = server.post("/slots/0?action=save", &json!({"filename": "a"})).error(500);
    assert!(error["message"].as_str().unwrap().contains("File too large"), "{error}");
    server.post("/v1/completions", &json!({"prompt": "a", "max_tokens": 1})).ok();
    server.signal("-TERM");
    let (status, stderr) = server.ended();
    assert!(status.success(), "{stderr}");
    assert!(stderr.contains("cannot keep a conversation"), "{stderr}");
    for folder in [&kept, &slots] {
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0, "nothing unfinished is left in {folder}");
    }
}
