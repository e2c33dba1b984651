//! The reader of the server's log, which stops reading for longer than it reads.

use std::io::Read;
use std::process::ChildStderr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const READS: Duration = Duration::from_secs(2);
/// A pipe holds 64 KiB, which the log of requests fills in less than that.
const STOPS: Duration = Duration::from_secs(5);

/// Reads by turns until the server ends. Returns the number of bytes read.
pub fn read_by_turns(mut log: ChildStderr) -> JoinHandle<u64> {
    std::thread::spawn(move || {
        let (mut bytes, mut buffer) = (0, [0; 4096]);
        let mut begin = Instant::now();
        loop {
            match log.read(&mut buffer).expect("the server's log") {
                0 => return bytes,
                read => bytes += read as u64,
            }
            if begin.elapsed() > READS {
                std::thread::sleep(STOPS);
                begin = Instant::now();
            }
        }
    })
}
