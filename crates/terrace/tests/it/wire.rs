//! HTTP/1.1 byte by byte, for requests that no client library sends.

use crate::server::{Server, TEST_TIMEOUT};
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};

/// A connection to the server.
pub struct Wire(BufReader<TcpStream>);

/// The start of a response.
#[derive(Debug)]
pub struct Head {
    pub status: u16,
    /// Names in lower case, and values.
    headers: Vec<(String, String)>,
}

/// A response.
#[derive(Debug)]
pub struct Received {
    pub head: Head,
    pub body: String,
}

impl Head {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    pub fn is_chunked(&self) -> bool {
        self.header("transfer-encoding") == Some("chunked")
    }
}

impl Received {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// The bytes of a POST request with a JSON body.
pub fn post(path: &str, body: &Value) -> String {
    let body = body.to_string();
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}")
}

/// The bytes of a GET request.
pub fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

impl Wire {
    pub fn connect(server: &Server) -> Self {
        Self::try_connect(server).unwrap()
    }

    pub fn try_connect(server: &Server) -> io::Result<Self> {
        let stream = TcpStream::connect(&server.address)?;
        stream.set_read_timeout(Some(TEST_TIMEOUT))?;
        stream.set_write_timeout(Some(TEST_TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    pub fn stream(&self) -> &TcpStream {
        self.0.get_ref()
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream().write_all(bytes.as_ref())
    }

    /// Ends the client's side of the connection, and leaves the server's open.
    pub fn finish(&self) {
        self.stream().shutdown(Shutdown::Write).unwrap();
    }

    /// Disconnects with a reset (RST) instead of an end (FIN).
    pub fn reset(self) {
        socket2::SockRef::from(self.stream()).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// The start of the next response, which may be an interim one (1xx).
    pub fn head(&mut self) -> io::Result<Head> {
        let first = self.line()?;
        let status = first.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)?.parse().ok());
        let status = status.unwrap_or_else(|| panic!("not a response: {first}"));
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else {
                assert!(line.is_empty(), "not a header: {line}");
                return Ok(Head { status, headers });
            };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    /// The next chunk of a body. `None` after the last one.
    pub fn chunk(&mut self) -> io::Result<Option<String>> {
        let size = self.line()?;
        let size = usize::from_str_radix(&size, 16).unwrap_or_else(|e| panic!("{e}: {size}"));
        let bytes = self.bytes(size)?;
        assert_eq!(self.line()?, "", "the end of a chunk");
        Ok((size > 0).then_some(bytes))
    }

    fn bytes(&mut self, count: usize) -> io::Result<String> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes)?;
        Ok(String::from_utf8(bytes).expect("answers are UTF-8"))
    }

    /// The next whole response to a request with a body.
    pub fn receive(&mut self) -> io::Result<Received> {
        let head = self.head()?;
        let mut body = String::new();
        if head.is_chunked() {
            while let Some(chunk) = self.chunk()? {
                body += &chunk;
            }
        } else if let Some(length) = head.header("content-length") {
            body = self.bytes(length.parse().unwrap())?;
        } else if head.status >= 200 {
            // HTTP/1.0 ends a body of unknown length by the end of the connection.
            body = self.rest()?;
        }
        Ok(Received { head, body })
    }

    /// Everything until the server closes the connection.
    pub fn rest(&mut self) -> io::Result<String> {
        let mut bytes = Vec::new();
        match self.0.read_to_end(&mut bytes) {
            Err(error) if error.kind() != io::ErrorKind::ConnectionReset => Err(error),
            _ => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }
}
