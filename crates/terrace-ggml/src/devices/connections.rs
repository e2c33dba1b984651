//! Connections of this process that have ended, as the system knows them: ggml says that a server
//! is gone, but not which.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

/// The addresses of a server `HOST:PORT`; none if its name cannot be resolved.
pub fn addresses(server: &str) -> Vec<SocketAddr> {
    server.to_socket_addrs().map_or_else(|_| Vec::new(), Iterator::collect)
}

/// A connection of this process: its file, and the number by which the system tells it from later
/// ones with the same file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    file: i32,
    inode: u64,
}

/// The open connections of this process to one of these addresses; none where the system does not
/// tell.
#[cfg(target_os = "linux")]
pub fn open_to(addresses: &[SocketAddr]) -> Vec<Connection> {
    let Ok(files) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let files = files.filter_map(|file| file.ok()?.file_name().to_str()?.parse().ok());
    let to = files.filter(|&file| peer(file).is_some_and(|peer| addresses.contains(&peer)));
    to.filter_map(|file| Some(Connection { file, inode: inode(file)? })).collect()
}

/// The open connections of this process to one of these addresses; none where the system does not
/// tell.
#[cfg(not(target_os = "linux"))]
pub fn open_to(_: &[SocketAddr]) -> Vec<Connection> {
    Vec::new()
}

impl Connection {
    /// Whether the other end has closed it. False if this end has.
    #[cfg(target_os = "linux")]
    pub fn has_ended(self) -> bool {
        inode(self.file) == Some(self.inode) && is_closed(self.file)
    }

    /// Whether the other end has closed it. False if this end has.
    #[cfg(not(target_os = "linux"))]
    pub fn has_ended(self) -> bool {
        false
    }
}

/// The system's number of an open file.
#[cfg(target_os = "linux")]
fn inode(file: libc::c_int) -> Option<u64> {
    // SAFETY: zeros are a value of this plain structure; the call fails for files that were closed.
    unsafe {
        let mut state: libc::stat = std::mem::zeroed();
        (libc::fstat(file, &raw mut state) == 0).then_some(state.st_ino)
    }
}

/// The other end of a connection; `None` if the file is none.
#[cfg(target_os = "linux")]
fn peer(file: libc::c_int) -> Option<SocketAddr> {
    // SAFETY: zeros are a value of this plain structure, which has room for every address; the call
    // fails for files that are no sockets or were closed meanwhile.
    let address = unsafe {
        let mut address: libc::sockaddr_storage = std::mem::zeroed();
        let mut len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        if libc::getpeername(file, (&raw mut address).cast(), &raw mut len) != 0 {
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

/// Whether the other end of a connection has closed it.
#[cfg(target_os = "linux")]
fn is_closed(file: libc::c_int) -> bool {
    let mut poll = libc::pollfd { fd: file, events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one live structure; the call does not wait.
    let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
    ready == 1 && poll.revents & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn only_connections_that_the_other_end_closed_have_ended() {
        let listeners = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let servers = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
        let ours = servers.map(|server| TcpStream::connect(server).unwrap());
        let theirs = listeners.each_ref().map(|listener| listener.accept().unwrap().0);
        // A name is not tried: a machine need not know `localhost`.
        assert_eq!(addresses(&servers[0].to_string()), [servers[0]]);
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
        assert!(addresses("no such host:1").is_empty() && addresses("127.0.0.1").is_empty());
    }
}
