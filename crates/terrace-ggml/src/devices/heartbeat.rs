//! Datagrams by which an RPC server is known to be alive while it computes, and what its devices are:
//! `terrace worker` answers them at the same address as its connections. Others do not answer.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};

/// The question, before a number of 8 bytes that the reply repeats.
const ASK: &[u8; 8] = b"terrace?";
/// The reply, before the same number.
const ANSWER: &[u8; 8] = b"terrace!";
/// Bytes of both.
const LEN: usize = 16;
/// The question, before such a number, about the devices.
const ASK_DEVICES: &[u8; 8] = b"terrace#";
/// The reply, before the same number and, for each device, the number of threads that compute
/// for it, in two bytes: 0 if it is no processor.
const DEVICES: &[u8; 8] = b"terrace=";
/// Most devices of an answer.
const MOST_DEVICES: usize = 64;
/// Number of times that a server is asked for its devices: datagrams may be lost.
const TRIES: u32 = 3;

/// Answers at an address from now on, with a thread of its own. `threads`: by device, the number of
/// threads that compute for it; 0 if it is no processor.
///
/// # Errors
/// The address cannot be bound, or there is no thread.
pub fn answer_at(address: SocketAddrV4, threads: &[u16]) -> io::Result<()> {
    let socket = UdpSocket::bind(address)?;
    let devices: Vec<u8> =
        threads.iter().take(MOST_DEVICES).flat_map(|threads| threads.to_le_bytes()).collect();
    let answer = move || {
        let mut datagram = [0; LEN + 1];
        loop {
            // A client that is gone makes a later call fail.
            if let Ok((LEN, from)) = socket.recv_from(&mut datagram) {
                if let Some(answer) = answer(&datagram[..LEN]) {
                    let _ = socket.send_to(&answer, from);
                } else if let Some(number) = datagram[..LEN].strip_prefix(ASK_DEVICES) {
                    let _ = socket.send_to(&[DEVICES, number, &devices].concat(), from);
                }
            }
        }
    };
    std::thread::Builder::new().name("terrace-pulse".into()).spawn(answer).map(drop)
}

/// The answer to a datagram; `None` if it is no question.
fn answer(question: &[u8]) -> Option<[u8; LEN]> {
    let number = question.strip_prefix(ASK)?;
    let mut answer = [0; LEN];
    answer[..ASK.len()].copy_from_slice(ANSWER);
    answer[ASK.len()..].copy_from_slice(number.get(..LEN - ASK.len())?);
    Some(answer)
}

/// Asks a server what its devices are, and waits for the answer no longer than `patience`. Returns, by
/// device, the number of threads that compute for it, 0 if it is no processor; `None` if it does not
/// tell.
pub fn threads_of_devices(address: SocketAddr, patience: Duration) -> Option<Vec<u16>> {
    let socket = UdpSocket::bind(any_of(address)).ok()?;
    socket.connect(address).ok()?;
    let mut answer = [0; LEN + 2 * MOST_DEVICES];
    for number in 1..=TRIES {
        let number = u64::from(number).to_le_bytes();
        socket.send(&[&ASK_DEVICES[..], &number].concat()).ok()?;
        let end = Instant::now() + patience / TRIES;
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            socket.set_read_timeout(Some(left)).ok()?;
            // Errors are those of a question that nobody heard, or the end of the time.
            let Ok(len) = socket.recv(&mut answer) else { break };
            if let Some(threads) = threads_in(&answer[..len]) {
                return Some(threads);
            }
        }
    }
    None
}

/// The threads by device in an answer to any of the questions.
fn threads_in(answer: &[u8]) -> Option<Vec<u16>> {
    let threads = answer.strip_prefix(DEVICES)?.get(LEN - DEVICES.len()..)?;
    let (each, []) = threads.as_chunks::<2>() else { return None };
    Some(each.iter().map(|bytes| u16::from_le_bytes(*bytes)).collect())
}

/// Any address of this machine from which `address` can be asked.
const fn any_of(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0)),
    }
}

/// Asks a server whether it is alive.
pub struct Pulse {
    socket: UdpSocket,
    /// Number of questions.
    asked: u64,
    /// Time without an answer, as far as this process has had time to ask; `None` means that there
    /// never was one.
    silent: Option<Duration>,
}

impl Pulse {
    /// Asks a server at an address for the first time.
    ///
    /// # Errors
    /// There is no way to send it anything.
    pub fn start(address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(any_of(address))?;
        socket.connect(address)?;
        socket.set_nonblocking(true)?;
        let mut pulse = Self { socket, asked: 0, silent: None };
        pulse.ask();
        Ok(pulse)
    }

    fn ask(&mut self) {
        self.asked += 1;
        let mut question = [0; LEN];
        question[..ASK.len()].copy_from_slice(ASK);
        question[ASK.len()..].copy_from_slice(&self.asked.to_le_bytes());
        // What cannot be sent is not answered.
        let _ = self.socket.send(&question);
    }

    /// Takes the answers that have come, and asks again, `pause` after the last time. Returns for how
    /// long there was no answer; `None` if the server has never answered.
    pub fn beat(&mut self, pause: Duration) -> Option<Duration> {
        self.silent = self.silent.map(|silent| silent + pause);
        let mut datagram = [0; LEN + 1];
        // Some errors are those of an earlier question: nobody listens. They count as silence.
        for _ in 0..LEN {
            match self.socket.recv(&mut datagram) {
                Ok(LEN) if datagram.starts_with(ANSWER) => self.silent = Some(Duration::ZERO),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(_) | Err(_) => {}
            }
        }
        self.ask();
        self.silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_questions_are_answered() {
        assert_eq!(answer(b"terrace?12345678").as_ref(), Some(b"terrace!12345678"));
        for other in [&b"terrace!12345678"[..], b"terrace?1234567", b"", b"GET / HTTP/1.1\r\n"] {
            assert_eq!(answer(other), None);
        }
    }

    #[test]
    fn a_server_tells_which_devices_are_processors() {
        let free = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let SocketAddr::V4(address) = free() else { panic!("an address of version 4") };
        let patience = Duration::from_secs(60);
        answer_at(address, &[0, 12]).unwrap();
        assert_eq!(threads_of_devices(address.into(), patience), Some(vec![0, 12]));
        let mut pulse = Pulse::start(address.into()).unwrap();
        while pulse.beat(Duration::ZERO).is_none() {
            std::thread::yield_now();
        }
        // An older worker does not know the question.
        let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert_eq!(threads_of_devices(silent.local_addr().unwrap(), Duration::from_millis(30)), None);
        assert_eq!(threads_in(b"terrace=12345678"), Some(Vec::new()));
        for other in [&b"terrace!12345678"[..], b"terrace=1234567", b"terrace=12345678x", b""] {
            assert_eq!(threads_in(other), None);
        }
    }

    #[test]
    fn a_server_that_answers_is_alive_and_one_that_never_did_is_unknown() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        let mut pulse = Pulse::start(address).unwrap();
        let second = Duration::from_secs(1);
        assert_eq!(pulse.beat(second), None);
        let mut datagram = [0; LEN];
        let (_, from) = socket.recv_from(&mut datagram).unwrap();
        socket.send_to(&answer(&datagram).unwrap(), from).unwrap();
        // Until the system has delivered it.
        while pulse.beat(second).is_none() {
            std::thread::yield_now();
        }
        assert_eq!(pulse.beat(second), Some(second));
        assert_eq!(pulse.beat(2 * second), Some(3 * second));
        drop(socket);
        assert_eq!(pulse.beat(second), Some(4 * second), "nobody listens any more");
    }
}
