//! A process with the plug-in, by its socket.

use super::error::AttachError;
use super::trusted;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use terrace_host::attach::{self, PROTOCOL};
use terrace_platform::local_socket;
use terrace_platform::local_socket::Stream;
use terrace_platform::owner;

/// Time that a process which is busy has to accept a connection.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Time that an answer may take. A reload compares the weights that the process holds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);
/// Bytes that an answer may have.
const LONGEST: u64 = 64 << 20;

/// A connection to a process.
pub struct Process {
    socket: PathBuf,
    stream: BufReader<Stream>,
}

impl Process {
    /// Connects to a process by its number or by its socket, or to the only one that there is.
    ///
    /// # Errors
    /// There is none, there are several, or it does not answer.
    pub fn connect(named: Option<&str>) -> Result<Self, AttachError> {
        let Some(user) = owner::user() else { return Err(AttachError::Nowhere) };
        let folder = attach::folder(terrace_cli::environment::var_os("XDG_RUNTIME_DIR"), user);
        match named {
            Some(name) => match name.parse() {
                Ok(process) => {
                    trusted::folder(&folder, user)?;
                    Self::open(&attach::socket(&folder, process), user)
                }
                // The administrator may name another user's process.
                Err(_) if user == owner::ADMINISTRATOR => Self::open_any(Path::new(name)),
                Err(_) => Self::open(Path::new(name), user),
            },
            None => {
                trusted::folder(&folder, user)?;
                let mut found: Vec<(u32, Self)> = attach::processes(&folder)
                    .into_iter()
                    .filter_map(|(number, socket)| Some((number, Self::open(&socket, user).ok()?)))
                    .collect();
                match found.len() {
                    0 => Err(AttachError::None(folder)),
                    1 => Ok(found.remove(0).1),
                    _ => {
                        let numbers: Vec<String> =
                            found.iter().map(|(number, _)| number.to_string()).collect();
                        Err(AttachError::Several(numbers.join(", ")))
                    }
                }
            }
        }
    }

    /// Connects to a process of the user or of the administrator.
    fn open(socket: &Path, user: u32) -> Result<Self, AttachError> {
        let process = Self::open_any(socket)?;
        trusted::peer(process.stream.get_ref(), socket, user)?;
        Ok(process)
    }

    fn open_any(socket: &Path) -> Result<Self, AttachError> {
        let connected = local_socket::connect(socket, CONNECT_TIME).and_then(|stream| {
            stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
            stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
            Ok(stream)
        });
        match connected {
            Ok(stream) => Ok(Self { socket: socket.to_owned(), stream: BufReader::new(stream) }),
            Err(error) => {
                Err(AttachError::Unreachable { socket: socket.to_owned(), reason: error.to_string() })
            }
        }
    }

    /// Asks for something, and waits for the answer.
    ///
    /// # Errors
    /// The process refuses, or goes away.
    pub fn ask(&mut self, command: &str, more: Option<(&str, Value)>) -> Result<Value, AttachError> {
        let mut request = json!({"version": PROTOCOL, "command": command});
        if let Some((name, value)) = more {
            request[name] = value;
        }
        let gone = |error: std::io::Error| AttachError::Unreachable {
            socket: self.socket.clone(),
            reason: error.to_string(),
        };
        self.stream.get_mut().write_all(format!("{request}\n").as_bytes()).map_err(gone)?;
        let mut line = String::new();
        self.stream.by_ref().take(LONGEST).read_line(&mut line).map_err(gone)?;
        let mut answer: Value =
            serde_json::from_str(&line).map_err(|_| AttachError::Other(self.socket.clone()))?;
        if !answer["version"].is_null() && answer["version"] != PROTOCOL {
            let (socket, found) = (self.socket.clone(), answer["version"].to_string());
            return Err(AttachError::Version { socket, found, expected: PROTOCOL });
        }
        if let Some(error) = answer["error"].as_str() {
            return Err(AttachError::Refused(error.to_owned()));
        }
        match answer["ok"].take() {
            Value::Null => Err(AttachError::Other(self.socket.clone())),
            value => Ok(value),
        }
    }
}
