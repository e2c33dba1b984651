//! Programs in a terminal.

use crate::server::TEST_TIMEOUT;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A terminal of 30 lines, and what a program wrote to it.
pub struct Terminal {
    keys: File,
    written: Receiver<Vec<u8>>,
    pub text: String,
}

impl Terminal {
    pub fn start(command: &mut Command, columns: u16) -> (Self, Child) {
        let (mut ours, mut theirs) = (-1, -1);
        let size = libc::winsize { ws_row: 30, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: both numbers are written to, and the other pointers are null or valid.
        let opened = unsafe {
            libc::openpty(
                &raw mut ours,
                &raw mut theirs,
                std::ptr::null_mut(),
                std::ptr::null(),
                &raw const size,
            )
        };
        assert_eq!(opened, 0);
        // SAFETY: they were just opened, and nothing else owns them.
        let (ours, theirs) = unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
        let copy = || theirs.try_clone().unwrap();
        let child = command
            .env("TERM", "xterm-256color")
            .stdin(copy())
            .stdout(copy())
            .stderr(copy())
            .spawn()
            .unwrap();
        let (send, written) = channel();
        let mut reader = ours.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut bytes = vec![0; 4096];
            // The end of the program is an error here.
            while let Ok(n @ 1..) = reader.read(&mut bytes) {
                if send.send(bytes[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        (Self { keys: ours, written, text: String::new() }, child)
    }

    /// Waits until the program has written this after all that was waited for before.
    #[track_caller]
    pub fn wait_for(&mut self, text: &str) -> String {
        let begin = Instant::now();
        loop {
            if let Some(at) = self.text.find(text) {
                return self.text.drain(..at + text.len()).collect();
            }
            match self.written.recv_timeout(Duration::from_millis(100)) {
                Ok(bytes) => self.text += &String::from_utf8_lossy(&bytes),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => panic!("it ended without `{text}`: {}", self.text),
            }
            assert!(begin.elapsed() < TEST_TIMEOUT, "`{text}` does not come: {}", self.text);
        }
    }

    pub fn press(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
    }
}
