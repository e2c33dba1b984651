//! Connections of this process that have ended, as the system knows them: ggml says that a server
//! is gone, but not which.

use crate::input_file::{self, MAX_SETTINGS};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::AsRawFd;

/// True if a connection of this process can take another's place.
pub const CAN_BE_REPLACED: bool = true;

/// A connection of this process: its file, and the number by which the system tells it from later
/// ones with the same file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    file: i32,
    inode: u64,
}

/// The open connections of this process to one of these addresses; none where the system does not
/// tell.
pub fn open_to(addresses: &[SocketAddr]) -> Vec<Connection> {
    let Ok(files) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let files = files.filter_map(|file| file.ok()?.file_name().to_str()?.parse().ok());
    // A socket for datagrams may have the same peer (`heartbeat.rs`).
    let streams = files.filter(|&file| option(file, libc::SO_TYPE) == Some(libc::SOCK_STREAM));
    let to = streams.filter(|&file| peer(file).is_some_and(|peer| addresses.contains(&peer)));
    to.filter_map(|file| Some(Connection { file, inode: inode(file)? })).collect()
}

/// The connections that a listening socket of this process at an address has accepted; none where the
/// system does not tell.
pub fn open_at(address: SocketAddrV4) -> Vec<Connection> {
    let Ok(files) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let files = files.filter_map(|file| file.ok()?.file_name().to_str()?.parse().ok());
    let streams = files.filter(|&file| option(file, libc::SO_TYPE) == Some(libc::SOCK_STREAM));
    let accepted = streams.filter(|&file| {
        end(file, libc::getsockname).is_some_and(|end| {
            end.port() == address.port() && (address.ip().is_unspecified() || end == address.into())
        }) && option(file, libc::SO_ACCEPTCONN) == Some(0)
    });
    accepted.filter_map(|file| Some(Connection { file, inode: inode(file)? })).collect()
}

/// True if an address is this process's end of one of its connections, or the system does not tell.
pub fn is_own(address: SocketAddr) -> bool {
    let Ok(files) = std::fs::read_dir("/proc/self/fd") else { return true };
    let mut files = files.filter_map(|file| file.ok()?.file_name().to_str()?.parse().ok());
    files.any(|file| end(file, libc::getsockname) == Some(address))
}

/// Seconds without a word from a client's machine after which it is asked for one, between further
/// questions, and the number of questions.
const ASK: [(libc::c_int, libc::c_int); 3] =
    [(libc::TCP_KEEPIDLE, 15), (libc::TCP_KEEPINTVL, 5), (libc::TCP_KEEPCNT, 3)];

/// Returns true if a socket of this process listens at an address. Connections that it accepts from then on
/// end if the other machine is gone.
pub fn watch_clients(address: SocketAddrV4) -> bool {
    let Ok(files) = std::fs::read_dir("/proc/self/fd") else { return true };
    let mut files = files.filter_map(|file| file.ok()?.file_name().to_str()?.parse().ok());
    let Some(file) = files.find(|&file| listens(file, address)) else { return false };
    ask_if_idle(file);
    true
}

/// Makes a connection, or those that a listening socket will accept, end if the other machine is
/// gone.
fn ask_if_idle(file: libc::c_int) {
    let set = |level, option, value: libc::c_int| {
        let len = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: one live number. If it fails, a lost machine is noticed later.
        unsafe { libc::setsockopt(file, level, option, (&raw const value).cast(), len) };
    };
    set(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
    for (option, value) in ASK {
        set(libc::IPPROTO_TCP, option, value);
    }
}

fn listens(file: libc::c_int, address: SocketAddrV4) -> bool {
    let accepts = option(file, libc::SO_ACCEPTCONN).is_some_and(|accepts| accepts != 0);
    accepts && end(file, libc::getsockname) == Some(address.into())
}

/// An option of a socket that is a number; `None` if the file is no socket.
fn option(file: libc::c_int, option: libc::c_int) -> Option<libc::c_int> {
    let (mut value, mut len): (libc::c_int, _) = (0, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: one live number, and its size; the call fails for files that are no sockets.
    let asked =
        unsafe { libc::getsockopt(file, libc::SOL_SOCKET, option, (&raw mut value).cast(), &raw mut len) };
    (asked == 0).then_some(value)
}

/// The system's facts about a connection (`struct tcp_info` of Linux), as far as they are needed.
#[repr(C)]
struct TcpInfo {
    _before: [u64; 15],
    bytes_acked: u64,
    bytes_received: u64,
}

impl Connection {
    /// Bytes that the other end has confirmed, and that have come from it.
    pub fn moved(self) -> (u64, u64) {
        let mut info = TcpInfo { _before: [0; 15], bytes_acked: 0, bytes_received: 0 };
        let mut len = size_of::<TcpInfo>() as libc::socklen_t;
        // SAFETY: one live structure of integers, and its size; older systems fill less of it. The
        // call fails for files that were closed.
        unsafe {
            let value = (&raw mut info).cast();
            libc::getsockopt(self.file, libc::IPPROTO_TCP, libc::TCP_INFO, value, &raw mut len);
        }
        (info.bytes_acked, info.bytes_received)
    }

    /// Returns true if a thread of this process is waiting to receive from it, or to send to it. False if
    /// the system does not tell.
    pub fn is_awaited(self) -> bool {
        let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return false };
        let calls = threads.filter_map(|thread| {
            input_file::read_regular_text(&thread.ok()?.path().join("syscall"), MAX_SETTINGS).ok()
        });
        let mut here = calls.filter_map(|call| waiting_at(&call));
        here.any(|file| file == self.file) && inode(self.file) == Some(self.inode)
    }

    /// Closes it, and puts another connection in its place.
    ///
    /// # Errors
    /// The system's; then nothing has changed.
    pub fn replace(self, by: TcpStream) -> std::io::Result<()> {
        // SAFETY: both are open files of this process: the caller knows of the first that nothing closes
        // it meanwhile, and the second is closed after the call. A child of this process gets neither.
        if unsafe { libc::dup3(by.as_raw_fd(), self.file, libc::O_CLOEXEC) } < 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(())
    }

    /// Makes it end if the other machine is gone.
    pub fn ask_if_idle(self) {
        if inode(self.file) == Some(self.inode) {
            ask_if_idle(self.file);
        }
    }

    /// Ends it, for this end and the other.
    pub fn shut_down(self) {
        if inode(self.file) == Some(self.inode) {
            // SAFETY: shuts a connection down, and closes no file.
            unsafe { libc::shutdown(self.file, libc::SHUT_RDWR) };
        }
    }

    /// Returns true if the other end has closed it. False if this end has.
    pub fn has_ended(self) -> bool {
        inode(self.file) == Some(self.inode) && is_closed(self.file)
    }
}

/// The file at which a thread waits, by the number and the first argument of its system call;
/// `None` if it does something else.
fn waiting_at(call: &str) -> Option<libc::c_int> {
    let mut words = call.split_whitespace();
    let number: libc::c_long = words.next()?.parse().ok()?;
    if ![libc::SYS_recvfrom, libc::SYS_sendto].contains(&number) {
        return None;
    }
    let first = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    libc::c_int::try_from(first).ok()
}

/// The system's number of an open file.
fn inode(file: libc::c_int) -> Option<u64> {
    // SAFETY: zeros are a value of this plain structure; the call fails for files that were closed.
    unsafe {
        let mut state: libc::stat = std::mem::zeroed();
        (libc::fstat(file, &raw mut state) == 0).then_some(state.st_ino)
    }
}

/// The other end of a connection; `None` if the file is none.
fn peer(file: libc::c_int) -> Option<SocketAddr> {
    end(file, libc::getpeername)
}

/// Asks the system for an address of a socket (`getpeername` or `getsockname`).
type Ask = unsafe extern "C" fn(libc::c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> libc::c_int;

/// An end of a connection; `None` if the file is none.
fn end(file: libc::c_int, ask: Ask) -> Option<SocketAddr> {
    // SAFETY: zeros are a value of this plain structure, which has room for every address; the call
    // fails for files that are no sockets or were closed meanwhile.
    let address = unsafe {
        let mut address: libc::sockaddr_storage = std::mem::zeroed();
        let mut len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        if ask(file, (&raw mut address).cast(), &raw mut len) != 0 {
            return None;
        }
        address
    };
    match i32::from(address.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says which structure it is, and the storage is aligned for all.
            let address = unsafe { *(&raw const address).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::new(ip.into(), u16::from_be(address.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let address = unsafe { *(&raw const address).cast::<libc::sockaddr_in6>() };
            let ip = IpAddr::V6(Ipv6Addr::from(address.sin6_addr.s6_addr)).to_canonical();
            Some(SocketAddr::new(ip, u16::from_be(address.sin6_port)))
        }
        _ => None,
    }
}

/// Returns true if the other end of a connection has closed it.
fn is_closed(file: libc::c_int) -> bool {
    let mut poll = libc::pollfd { fd: file, events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one live structure; the call does not wait.
    let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
    ready == 1 && poll.revents & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    #[test]
    fn who_waits_at_a_connection_is_seen_until_it_is_shut_down() {
        use std::io::Read;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = listener.local_addr().unwrap();
        let mut ours = TcpStream::connect(server).unwrap();
        let mut theirs = listener.accept().unwrap().0;
        let connection = open_to(&[server])[0];
        assert!(!connection.is_awaited());
        let before = connection.moved();
        std::io::Write::write_all(&mut theirs, b"some").unwrap();
        ours.read_exact(&mut [0; 4]).unwrap();
        assert_eq!(connection.moved(), (before.0, before.1 + 4));
        let waiting = std::thread::spawn(move || (ours.read(&mut [0; 4]).unwrap(), ours));
        while !connection.is_awaited() {
            std::thread::yield_now();
        }
        connection.ask_if_idle();
        connection.shut_down();
        assert!(connection.has_ended());
        assert_eq!(waiting.join().unwrap().0, 0);
        assert_eq!(waiting_at("45 0x7 0x1 0x2"), (libc::SYS_recvfrom == 45).then_some(7));
        assert_eq!((waiting_at("running\n"), waiting_at("-1 0x0 0x0"), waiting_at("")), (None, None, None));
    }

    #[test]
    fn only_connections_that_the_other_end_closed_have_ended() {
        let listeners = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let servers = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
        let ours = servers.map(|server| TcpStream::connect(server).unwrap());
        let theirs = listeners.each_ref().map(|listener| listener.accept().unwrap().0);
        let datagrams = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        datagrams.connect(servers[0]).unwrap();
        let to = servers.map(|server| open_to(&[server]));
        assert!(to.iter().all(|to| to.len() == 1) && to[0] != to[1], "{to:?}");
        assert!(!to[0][0].has_ended() && !to[1][0].has_ended());
        let [first, second] = theirs;
        drop(first);
        // Until the system has told the other end.
        while !to[0][0].has_ended() {
            std::thread::yield_now();
        }
        assert!(!to[1][0].has_ended());
        drop((ours, second));
        assert!(!to[0][0].has_ended(), "this end has closed it");
    }
}
