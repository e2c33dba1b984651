//! Brings what a server says, by threads that ask again when it goes away.

use super::seen::Slot;
use serde_json::{Value, json};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::sleep;
use std::time::Duration;
use terrace_cli::remote::{Remote, RemoteError};

/// The stream of experts.
pub const STREAM: &str = "/v1/experts/stream?rate=4";

/// Time before a server that went away is asked again, and between two looks at its slots.
const AGAIN: Duration = Duration::from_secs(1);

/// News of a server.
#[derive(Debug)]
pub enum Update {
    /// An event of the stream of experts.
    Event(Value),
    /// The server slots, and the model's name.
    Slots(Vec<Slot>, String),
    /// The server does not answer, with the reason.
    Lost(String),
    /// Result of a key.
    Said(String),
}

/// The news of one server, until this is dropped.
pub struct Feed {
    updates: Receiver<Update>,
    send: Sender<Update>,
}

impl Feed {
    /// Starts the threads. They end with the process, or at the first news after this is dropped.
    pub fn start(remote: &Remote) -> Self {
        let (send, updates) = channel();
        let (of, to) = (remote.clone(), send.clone());
        std::thread::spawn(move || follow(&of, &to, AGAIN));
        let (of, to) = (remote.clone(), send.clone());
        std::thread::spawn(move || look(&of, &to));
        Self { updates, send }
    }

    /// Updates since the last call.
    pub fn updates(&self) -> impl Iterator<Item = Update> {
        self.updates.try_iter()
    }

    /// Sets what is reported, which begins a window, without waiting for the answer.
    pub fn set_mode(&self, remote: &Remote, mode: &str) {
        let (remote, send, mode) = (remote.clone(), self.send.clone(), mode.to_owned());
        std::thread::spawn(move || {
            let body = json!({"mode": mode}).to_string();
            let said = match remote.post("/moe-layer-perf", &body) {
                Ok(_) => format!("mode {mode}: a new window starts now"),
                Err(error) => error.to_string(),
            };
            let _ = send.send(Update::Said(said));
        });
    }
}

/// Follows the stream, and opens it again after each end.
fn follow(remote: &Remote, send: &Sender<Update>, pause: Duration) {
    loop {
        let reason = match remote.events(STREAM) {
            Ok(mut events) => loop {
                let Some(event) = events.next() else {
                    break "the connection to the server was lost".to_owned();
                };
                if send.send(Update::Event(event)).is_err() {
                    return;
                }
            },
            Err(error) => error.to_string(),
        };
        if send.send(Update::Lost(reason)).is_err() {
            return;
        }
        sleep(pause);
    }
}

/// Looks at the server slots from time to time.
fn look(remote: &Remote, send: &Sender<Update>) {
    loop {
        // The other thread tells of errors.
        if let Ok((slots, model)) = slots(remote)
            && send.send(Update::Slots(slots, model)).is_err()
        {
            return;
        }
        sleep(AGAIN);
    }
}

/// The server slots, and the model's name.
///
/// # Errors
/// The server does not answer, or is loading its model.
pub fn slots(remote: &Remote) -> Result<(Vec<Slot>, String), RemoteError> {
    let slots = remote.get("/slots")?;
    let models = remote.get("/v1/models")?;
    let name = models["data"][0]["id"].as_str().unwrap_or_default().to_owned();
    let number = |slot: &Value, name: &str| slot[name].as_u64().unwrap_or(0);
    let slot = |slot: &Value| Slot {
        state: slot["state"].as_str().unwrap_or_default().to_owned(),
        held: number(slot, "held_tokens"),
        context: number(slot, "n_ctx"),
        prompt: number(slot, "prompt_tokens"),
        generated: number(slot, "generated_tokens"),
    };
    Ok((slots.as_array().into_iter().flatten().map(slot).collect(), name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use terrace_cli::remote::ServerArgs;

    #[test]
    fn a_server_that_goes_away_is_asked_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap().to_string();
        let serve = move |number: u32| {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<String> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            assert!(head[0].starts_with(&format!("GET {STREAM} ")), "{head:?}");
            assert!(head.iter().any(|line| line == "authorization: Bearer secret"), "{head:?}");
            let event = format!("id: {number}\ndata: {{\"cursor\": {number}}}\n\n");
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{event}").unwrap();
        };
        let serving = std::thread::spawn(move || (1..=2).for_each(serve));
        let remote = Remote::new(&ServerArgs { server, api_key: vec!["secret".into()] }).unwrap();
        let (send, updates) = channel();
        let following = std::thread::spawn(move || follow(&remote, &send, Duration::ZERO));
        for number in 1..=2 {
            match updates.recv().unwrap() {
                Update::Event(event) => assert_eq!(event["cursor"], number),
                other => panic!("{other:?}"),
            }
            assert!(matches!(updates.recv().unwrap(), Update::Lost(_)));
        }
        serving.join().unwrap();
        // Nothing listens any more.
        match updates.recv().unwrap() {
            Update::Lost(reason) => assert!(reason.starts_with("http://127.0.0.1:"), "{reason}"),
            other => panic!("{other:?}"),
        }
        drop(updates);
        following.join().unwrap();
    }
}
