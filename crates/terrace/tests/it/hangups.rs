//! Terminals that close.

use crate::common::bundled;
use crate::server::Server;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::null_mut;

/// Makes a terminal, and returns the end that a terminal's program has, and the one for programs in it.
fn terminal() -> (File, File) {
    let (mut outer, mut inner) = (0, 0);
    // SAFETY: both numbers are written; the other pointers may be null.
    let made = unsafe { libc::openpty(&raw mut outer, &raw mut inner, null_mut(), null_mut(), null_mut()) };
    assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the descriptors are new, and nothing else owns them.
    unsafe {
        libc::fcntl(outer, libc::F_SETFD, libc::FD_CLOEXEC);
        (File::from_raw_fd(outer), File::from_raw_fd(inner))
    }
}

/// Starts a command in a terminal, as its shell would be; with `ignore`, as by `nohup`.
fn start_in(command: &mut Command, inner: File, ignore: bool) -> &mut Command {
    let stderr = inner.try_clone().unwrap();
    let in_terminal = move || {
        // SAFETY: these may be called after a fork.
        let failed = unsafe {
            if ignore {
                libc::signal(libc::SIGHUP, libc::SIG_IGN);
            }
            libc::setsid() < 0 || libc::ioctl(inner.as_raw_fd(), libc::TIOCSCTTY, 0) < 0
        };
        if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: the closure only makes system calls.
    unsafe { command.stderr(stderr).pre_exec(in_terminal) }
}

#[test]
fn a_server_ends_with_its_terminal() {
    let (outer, inner) = terminal();
    let args = ["--ctx", "128"];
    let server = Server::start_with(&bundled(), args, |command| start_in(command, inner, false));
    // Not the terminal's end: files are looked at again.
    server.signal("-HUP");
    server.get("/health").ok();
    std::thread::sleep(std::time::Duration::from_millis(500));
    server.get("/health").ok();
    drop(outer);
    let (status, _) = server.ended();
    assert!(status.success(), "{status}");
}

#[test]
fn a_server_of_several_models_ends_with_its_terminal() {
    let (outer, inner) = terminal();
    let model = bundled();
    let args = ["--ctx", "128", "--keep-alive", "10m"];
    let server = Server::start_with(&model, args, |command| start_in(command, inner, false));
    server.post("/v1/completions", &serde_json::json!({"prompt": "a", "max_tokens": 1})).ok();
    drop(outer);
    let (status, _) = server.ended();
    assert!(status.success(), "{status}");
}

#[test]
fn a_server_under_nohup_outlives_its_terminal() {
    let (outer, inner) = terminal();
    let server = Server::start_with(&bundled(), ["--ctx", "128"], |command| start_in(command, inner, true));
    drop(outer);
    server.signal("-HUP");
    std::thread::sleep(std::time::Duration::from_millis(500));
    server.post("/v1/completions", &serde_json::json!({"prompt": "a", "max_tokens": 1})).ok();
    server.signal("-TERM");
    assert!(server.ended().0.success());
}
