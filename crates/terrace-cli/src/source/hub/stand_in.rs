//! A hub for tests: a small HTTP server on this machine with one repository, which can break
//! connections.
//!
//! As on the real hub, a file's own address answers with a redirection to a storage that knows
//! nothing of commits.

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
pub const REPO: &str = "owner/tiny-GGUF";

/// Its misbehaviour.
#[derive(Clone, Default)]
pub struct Behaviour {
    /// Ends these many downloads after so many bytes.
    pub cuts: Vec<usize>,
    /// Announces another length.
    pub size: Option<u64>,
    /// Announces another checksum.
    pub sha256: Option<String>,
    /// Answers ranges with the whole file.
    pub ignores_ranges: bool,
    /// Fails downloads with this status.
    pub status: Option<u16>,
    /// Ends nothing, but sends only so many bytes of these many downloads.
    pub stalls: Vec<usize>,
    /// Answers so many requests to the hub itself with 503.
    pub busy: usize,
    /// Answers all requests to the hub itself with this status.
    pub refuses: Option<u16>,
    /// Answers all requests to the hub itself with a redirection to there.
    pub leads_to: Option<String>,
    /// `http://host:port` of the storage; here by default.
    pub storage: Option<String>,
    /// Sends other bytes at the end of these many downloads.
    pub wrong: usize,
    /// Sends more bytes than there are at the end of these many downloads.
    pub longer: usize,
    /// Sends bodies of downloads in pieces, with a pause before each.
    pub pause: Option<Duration>,
    /// Says that bodies of downloads are encoded in this way.
    pub encoding: Option<&'static str>,
    /// Each download is of another version of the file, under another tag: all bytes differ, or the
    /// first megabyte only.
    pub versions: Option<Versions>,
}

/// Differences between versions of a file.
#[derive(Clone, Copy)]
pub enum Versions {
    Everywhere,
    /// In the first 1000 bytes.
    AtTheBeginning,
}

struct State {
    /// Downloads so far.
    downloads: usize,
    files: BTreeMap<String, Vec<u8>>,
    behaviour: Behaviour,
    /// `METHOD path range` of all requests.
    log: Vec<String>,
    /// Paths of requests with a token.
    trusted: Vec<String>,
}

pub struct StandIn {
    pub endpoint: String,
    state: Arc<Mutex<State>>,
}

impl StandIn {
    pub fn new(files: &[(&str, Vec<u8>)], behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let files = files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.clone())).collect();
        let state = Arc::new(Mutex::new(State {
            downloads: 0,
            files,
            behaviour,
            log: Vec::new(),
            trusted: Vec::new(),
        }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let state = Arc::clone(&shared);
                // A client that goes away ends only its own connection.
                std::thread::spawn(move || stream.and_then(|s| serve(s, &state)));
            }
        });
        Self { endpoint, state }
    }

    pub fn behave(&self, behaviour: Behaviour) {
        self.state.lock().unwrap().behaviour = behaviour;
    }

    /// Requests since the last call.
    pub fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().log)
    }

    /// Paths of requests with a token since the last call.
    pub fn take_trusted(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().trusted)
    }

    /// Downloads among them: their ranges.
    pub fn take_ranges(&self) -> Vec<String> {
        let downloads =
            self.take_log().into_iter().filter_map(|l| Some(l.strip_prefix("GET /storage/")?.to_owned()));
        downloads.map(|l| l.split_once(' ').unwrap().1.to_owned()).collect()
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    loop {
        let mut request = String::new();
        if reader.read_line(&mut request)? == 0 {
            return Ok(());
        }
        let (mut range, mut trusted) = (String::new(), false);
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            match header.to_ascii_lowercase().trim().split_once(": ") {
                Some(("range", value)) => range = value.to_owned(),
                Some(("authorization", value)) => trusted = value == "bearer secret",
                _ => {}
            }
            if header.trim().is_empty() {
                break;
            }
        }
        let mut words = request.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if trusted {
            state.lock().unwrap().trusted.push(path.to_owned());
        }
        if !answer(&mut stream, state, method, path, &range)? {
            return Ok(());
        }
    }
}

/// Answers one request; false if the connection must end.
fn answer(
    out: &mut TcpStream,
    state: &Mutex<State>,
    method: &str,
    path: &str,
    range: &str,
) -> std::io::Result<bool> {
    let mut state = state.lock().unwrap();
    state.log.push(format!("{method} {path} {range}"));
    let head = method == "HEAD";
    let address = out.local_addr()?;
    let mut reply = |status: &str, headers: &str, body: &[u8], cut: Option<usize>| -> std::io::Result<bool> {
        write!(out, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n", body.len())?;
        if !head {
            out.write_all(&body[..cut.unwrap_or(body.len()).min(body.len())])?;
        }
        out.flush()?;
        Ok(cut.is_none() || head)
    };
    if !path.starts_with("/storage/") {
        let behaviour = &mut state.behaviour;
        if let Some(to) = &behaviour.leads_to {
            return reply("302 Found", &format!("Location: {to}\r\n"), b"", None);
        }
        if let Some(status) = behaviour.refuses {
            return reply(&format!("{status} No"), "X-Error-Code: GatedRepo\r\n", b"", None);
        }
        if behaviour.busy > 0 {
            behaviour.busy -= 1;
            return reply("503 Busy", "", b"", None);
        }
    }
    if let Some(rest) = path.strip_prefix("/old/name/") {
        return reply("307 Moved", &format!("Location: /{REPO}/{rest}\r\n"), b"", None);
    }
    if let Some(id) = path.strip_prefix("/api/models/") {
        let (id, blobs) = id.strip_suffix("?blobs=true").map_or((id, false), |id| (id, true));
        if id != REPO {
            return reply("404 Not Found", "X-Error-Code: RepoNotFound\r\n", b"{}", None);
        }
        let described = |(name, bytes): (&String, &Vec<u8>)| match blobs {
            true => serde_json::json!({ "rfilename": name, "size": bytes.len() }),
            false => serde_json::json!({ "rfilename": name }),
        };
        let siblings: Vec<_> = state.files.iter().map(described).collect();
        let info = serde_json::json!({ "_id": "1", "id": REPO, "sha": COMMIT, "siblings": siblings });
        return reply("200 OK", "Content-Type: application/json\r\n", info.to_string().as_bytes(), None);
    }
    let resolve = format!("/{REPO}/resolve/main/");
    if let Some(name) = path.strip_prefix(&resolve) {
        let Some(bytes) = state.files.get(&decoded(name)) else {
            return reply("404 Not Found", "X-Error-Code: EntryNotFound\r\n", b"", None);
        };
        let sha = state.behaviour.sha256.clone().unwrap_or_else(|| hex(bytes));
        let size = state.behaviour.size.unwrap_or(bytes.len() as u64);
        let storage = state.behaviour.storage.clone().unwrap_or_else(|| format!("http://{address}"));
        let headers = format!(
            "X-Repo-Commit: {COMMIT}\r\nX-Linked-Etag: \"{sha}\"\r\nX-Linked-Size: {size}\r\n\
             ETag: \"pointer\"\r\nLocation: {storage}/storage/{name}\r\n"
        );
        return reply("302 Found", &headers, b"", None);
    }
    let Some(name) = path.strip_prefix("/storage/") else {
        return reply("404 Not Found", "X-Error-Code: RepoNotFound\r\n", b"", None);
    };
    if let (Some(status), false) = (state.behaviour.status, head) {
        return reply(&format!("{status} Trouble"), "", b"", None);
    }
    let cut =
        if head || state.behaviour.cuts.is_empty() { None } else { Some(state.behaviour.cuts.remove(0)) };
    let mut bytes = state.files[&decoded(name)].clone();
    if !head {
        state.downloads += 1;
    }
    let mut tag = "storage".to_owned();
    if let Some(versions) = state.behaviour.versions {
        let changed = match versions {
            Versions::Everywhere => bytes.len(),
            Versions::AtTheBeginning => 1000,
        };
        let version = state.downloads as u8;
        bytes[..changed].iter_mut().for_each(|byte| *byte ^= version);
        tag = format!("version {version}");
    }
    if !head && state.behaviour.wrong > 0 {
        state.behaviour.wrong -= 1;
        *bytes.last_mut().unwrap() ^= 1;
    }
    let (start, mut end) =
        range.strip_prefix("bytes=").and_then(|r| r.split_once('-')).map_or((0, 0), |(start, end)| {
            (start.parse().unwrap(), end.parse::<usize>().unwrap().min(bytes.len() - 1))
        });
    let encoding = state.behaviour.encoding.map(|e| format!("Content-Encoding: {e}\r\n")).unwrap_or_default();
    if !head && !state.behaviour.stalls.is_empty() {
        let sent = state.behaviour.stalls.remove(0);
        drop(state);
        write!(out, "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\n\r\n", end + 1 - start)?;
        out.write_all(&bytes[start..start + sent])?;
        // Until the client has had enough.
        return out.read(&mut [0]).map(|_| false);
    }
    if !head && state.behaviour.longer > 0 {
        state.behaviour.longer -= 1;
        bytes.extend([7; 200_000]);
        end += 200_000;
    }
    let whole = range.is_empty() || state.behaviour.ignores_ranges;
    let (status, body, part) = match whole {
        true => ("200 OK", &bytes[..], String::new()),
        false => (
            "206 Partial Content",
            &bytes[start..=end],
            format!("Content-Range: bytes {start}-{end}/{}\r\n", bytes.len()),
        ),
    };
    let headers = format!("ETag: \"{tag}\"\r\n{encoding}{part}");
    let Some(pause) = state.behaviour.pause.filter(|_| !head) else {
        return reply(status, &headers, body, cut);
    };
    // Others are answered meanwhile.
    drop(state);
    write!(out, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n", body.len())?;
    let body = &body[..cut.unwrap_or(body.len()).min(body.len())];
    for piece in body.chunks(body.len().div_ceil(PIECES).max(1)) {
        std::thread::sleep(pause);
        out.write_all(piece)?;
        out.flush()?;
    }
    Ok(cut.is_none())
}

/// Pieces of a body that is sent with pauses.
const PIECES: usize = 20;

fn decoded(name: &str) -> String {
    percent_encoding::percent_decode_str(name).decode_utf8().unwrap().into_owned()
}

pub fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}
