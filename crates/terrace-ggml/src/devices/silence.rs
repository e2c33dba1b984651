//! RPC servers that say nothing any more, although their connection stays open: a machine that is
//! gone, a stopped process. ggml waits for them for ever.
//!
//! A thread looks at the connections from time to time. If a thread of ggml waits at one of them, and
//! the server is found silent, the connection is shut down; ggml then takes the server for lost
//! (`remote.rs`). A server that computes says nothing on its connection, for minutes if a prompt is
//! long. Terrace's own server (`heartbeat.rs`) therefore answers datagrams beside it. Of others only
//! the connection is known, so they get more time.

use super::connections::{self, Connection};
use super::heartbeat::Pulse;
use std::net::SocketAddr;
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

/// Time for a server that answers datagrams.
const LIVELY: Duration = Duration::from_secs(15);
/// Time for other servers, and for one that answers while its connection does not move.
const QUIET: Duration = Duration::from_secs(600);
/// Shortest and longest time between two looks.
const LOOKS: [Duration; 2] = [Duration::from_millis(25), Duration::from_secs(1)];

/// What has been set with [`give_up_after`].
static PATIENCE: Mutex<Option<Duration>> = Mutex::new(None);
/// The servers.
static SERVERS: Mutex<Vec<Server>> = Mutex::new(Vec::new());

/// Sets after how much silence servers are given up from now on, while an answer is awaited. By
/// default that is 15 seconds for servers that answer datagrams beside the connection
/// (`terrace worker`), and 10 minutes for others, which say nothing while they compute.
pub fn give_up_after(time: Duration) {
    *PATIENCE.lock().unwrap_or_else(PoisonError::into_inner) = Some(time);
}

/// A server whose connections are watched.
struct Server {
    name: String,
    addresses: Vec<SocketAddr>,
    pulse: Option<Pulse>,
    lines: Vec<Line>,
}

/// A connection at which ggml waits.
struct Line {
    connection: Connection,
    /// Bytes that the server has confirmed, and that it has sent.
    moved: (u64, u64),
    /// Time for which nothing has moved, as far as this process has had time to look.
    still: Duration,
}

/// Watches the connections to a server `HOST:PORT` from now on.
pub fn watch(server: &str) {
    static START: Once = Once::new();
    let addresses = connections::addresses(server);
    let pulse = addresses.iter().find_map(|address| Pulse::start(*address).ok());
    let server = Server { name: server.into(), addresses, pulse, lines: Vec::new() };
    SERVERS.lock().unwrap_or_else(PoisonError::into_inner).push(server);
    START.call_once(|| {
        // If there is no thread for it, silent servers are waited for.
        let _ = std::thread::Builder::new().name("terrace-silence".into()).spawn(|| {
            loop {
                let time = PATIENCE.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or(LIVELY);
                let pause = (time / 16).clamp(LOOKS[0], LOOKS[1]);
                std::thread::sleep(pause);
                look(pause);
            }
        });
    });
}

/// Looks at all connections, `pause` after the last time.
fn look(pause: Duration) {
    let given = *PATIENCE.lock().unwrap_or_else(PoisonError::into_inner);
    for server in SERVERS.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
        let lively = server.pulse.as_mut().and_then(|pulse| pulse.beat(pause));
        let open = connections::open_to(&server.addresses);
        server.lines.retain(|line| open.contains(&line.connection));
        for connection in open {
            let (moved, waiting) = (connection.moved(), connection.is_awaited());
            let known = server.lines.iter_mut().find(|line| line.connection == connection);
            let Some(line) = known else {
                connection.ask_if_idle();
                server.lines.push(Line { connection, moved, still: Duration::ZERO });
                continue;
            };
            if !waiting || moved != line.moved {
                (line.moved, line.still) = (moved, Duration::ZERO);
                continue;
            }
            line.still += pause;
            let silent = match lively {
                // A server that computes does not move its connection.
                Some(silent) => line.still.min(silent) > given.unwrap_or(LIVELY) || line.still > QUIET,
                None => line.still > given.unwrap_or(QUIET),
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
