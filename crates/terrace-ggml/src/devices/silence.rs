//! RPC servers that say nothing any more, although their connection stays open: a machine that is
//! gone, a stopped process. ggml waits for them for ever.
//!
//! A thread looks at the connections from time to time. If a thread of ggml waits at one of them, and
//! the server is found silent, the connection is shut down; ggml then takes the server for lost
//! (`remote.rs`). A server that computes says nothing on its connection, for minutes if a prompt is
//! long. Terrace's own server (`heartbeat.rs`) therefore answers datagrams beside it. Of others only
//! the connection is known, so they get more time.

use super::address;
use super::heartbeat::Pulse;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;
use terrace_platform::connections::{self, Connection};

/// Time for a server that answers datagrams.
const LIVELY: Duration = Duration::from_secs(15);
/// Time for other servers, and for one that answers while its connection does not move.
const QUIET: Duration = Duration::from_secs(600);
/// The same while a model is loaded, for servers that do not answer datagrams: nothing is computed.
const QUIET_LOAD: Duration = Duration::from_secs(60);
/// Bytes that count as movement. A server that sends one byte a second is as good as silent.
const STEP: u64 = 4 << 10;
/// Shortest and longest time between two looks.
const LOOKS: [Duration; 2] = [Duration::from_millis(25), Duration::from_secs(1)];

/// Limit that was set with [`give_up_after`].
static SILENCE_LIMIT: Mutex<Option<Duration>> = Mutex::new(None);
static SERVERS: Mutex<Vec<Server>> = Mutex::new(Vec::new());

/// Sets after how much silence servers are given up from now on, while an answer is awaited. By
/// default that is 15 seconds for servers that answer datagrams beside the connection
/// (`terrace worker`), and 10 minutes for others, which say nothing while they compute.
pub fn give_up_after(time: Duration) {
    *SILENCE_LIMIT.lock().unwrap_or_else(PoisonError::into_inner) = Some(time);
}

/// The time set with [`give_up_after`].
pub(crate) fn patience() -> Option<Duration> {
    *SILENCE_LIMIT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of models that are being loaded.
static LOADS: AtomicU32 = AtomicU32::new(0);

/// While it lives, a model is being loaded.
pub(crate) struct Loading(());

impl Loading {
    pub(crate) fn begin() -> Self {
        LOADS.fetch_add(1, Ordering::AcqRel);
        Self(())
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        LOADS.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A server whose connections are watched.
struct Server {
    name: String,
    addresses: Vec<SocketAddr>,
    pulse: Option<Pulse>,
    lines: Vec<WatchedConnection>,
}

/// A connection at which ggml waits.
struct WatchedConnection {
    connection: Connection,
    /// Bytes that the server had confirmed, and that it had sent, when it moved last.
    moved: (u64, u64),
    /// Time for which nothing has moved, as far as this process has had time to look.
    still: Duration,
}

/// Watches the connections to a server `HOST:PORT` from now on.
pub fn watch(server: &str) {
    static START: Once = Once::new();
    let addresses = address::resolve(server);
    let pulse = addresses.iter().find_map(|address| Pulse::start(*address).ok());
    let server = Server { name: server.into(), addresses, pulse, lines: Vec::new() };
    SERVERS.lock().unwrap_or_else(PoisonError::into_inner).push(server);
    START.call_once(|| {
        // If there is no thread for it, silent servers are waited for.
        let _ = std::thread::Builder::new().name("terrace-silence".into()).spawn(|| {
            loop {
                let time = SILENCE_LIMIT.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or(LIVELY);
                let pause = (time / 16).clamp(LOOKS[0], LOOKS[1]);
                std::thread::sleep(pause);
                look(pause);
            }
        });
    });
}

/// Looks at all connections, `pause` after the last time.
fn look(pause: Duration) {
    let given = patience();
    let quiet = if LOADS.load(Ordering::Acquire) > 0 { QUIET_LOAD } else { QUIET };
    for server in SERVERS.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
        let lively = server.pulse.as_mut().and_then(|pulse| pulse.beat(pause));
        let open = connections::open_to(&server.addresses);
        server.lines.retain(|line| open.contains(&line.connection));
        for connection in open {
            let (moved, waiting) = (connection.moved(), connection.is_awaited());
            let known = server.lines.iter_mut().find(|line| line.connection == connection);
            let Some(line) = known else {
                connection.ask_if_idle();
                server.lines.push(WatchedConnection { connection, moved, still: Duration::ZERO });
                continue;
            };
            if !waiting || has_moved(line.moved, moved) {
                (line.moved, line.still) = (moved, Duration::ZERO);
                continue;
            }
            line.still += pause;
            let silent = match lively {
                // A server that computes does not move its connection.
                Some(silent) => line.still.min(silent) > given.unwrap_or(LIVELY) || line.still > QUIET,
                None => line.still > given.unwrap_or(quiet),
            };
            if silent {
                tracing::warn!(
                    "RPC server {} has said nothing for {:.1} s, and is given up",
                    server.name,
                    line.still.as_secs_f64()
                );
                line.still = Duration::ZERO;
                connection.shut_down();
            }
        }
    }
}

/// True if a connection has moved since `before`: many bytes, or a question and the answer to another one.
const fn has_moved(before: (u64, u64), now: (u64, u64)) -> bool {
    let (sent, got) = (now.0.saturating_sub(before.0), now.1.saturating_sub(before.1));
    sent >= STEP || got >= STEP || (sent > 0 && got > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_bytes_are_no_movement() {
        let before = (100, 1000);
        for (now, moved) in [
            ((100, 1000), false),
            ((100, 1015), false),
            ((160, 1000), false),
            ((101, 1001), true),
            ((100, 1000 + STEP), true),
            ((100 + STEP, 1000), true),
        ] {
            assert_eq!(has_moved(before, now), moved, "{now:?}");
        }
    }
}
