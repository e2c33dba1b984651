//! Connections of this process that have ended, as the system's tables of connections know them: ggml says that a
//! server is gone, but not which. The tables have no handles, so that nothing can be done to a connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, TcpStream};
use windows_sys::Win32::Foundation::{ERROR_INSUFFICIENT_BUFFER, NO_ERROR};
use windows_sys::Win32::NetworkManagement::IpHelper::{
    GetExtendedTcpTable, MIB_TCP_STATE_CLOSE_WAIT, MIB_TCP_STATE_ESTAB, MIB_TCP6ROW_OWNER_PID,
    MIB_TCPROW_OWNER_PID, TCP_TABLE_OWNER_PID_CONNECTIONS,
};
use windows_sys::Win32::Networking::WinSock::{AF_INET, AF_INET6};

/// True if a connection of this process can take another's place.
pub const CAN_BE_REPLACED: bool = false;

/// A connection of this process: its own address, and the other end's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    own: SocketAddr,
    peer: SocketAddr,
}

/// The open connections of this process to one of these addresses.
pub fn open_to(addresses: &[SocketAddr]) -> Vec<Connection> {
    let open = own().into_iter().filter(|row| row.is_open);
    open.map(|row| row.connection).filter(|connection| addresses.contains(&connection.peer)).collect()
}

/// The connections that a listening socket has accepted: none, since nothing can be done to them.
pub fn open_at(_: SocketAddrV4) -> Vec<Connection> {
    Vec::new()
}

/// True if an address is this process's end of one of its connections.
pub fn is_own(address: SocketAddr) -> bool {
    own().iter().any(|row| row.connection.own == address)
}

/// True: the system does not tell.
pub fn watch_clients(_: SocketAddrV4) -> bool {
    true
}

impl Connection {
    /// Bytes that the other end has confirmed, and that have come from it: none, since the system does not tell.
    pub const fn moved(self) -> (u64, u64) {
        (0, 0)
    }

    /// Returns true if a thread of this process is waiting at it: false, since the system does not tell.
    pub const fn is_awaited(self) -> bool {
        false
    }

    /// Closes it, and puts another connection in its place.
    ///
    /// # Errors
    /// Always: the system has no such call.
    pub fn replace(self, _: TcpStream) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    /// Would make it end if the other machine is gone. The system has no such call.
    pub const fn ask_if_idle(self) {}

    /// Would end it. The system has no such call.
    pub const fn shut_down(self) {}

    /// Returns true if the other end has closed it, or if it is gone.
    pub fn has_ended(self) -> bool {
        let row = own().into_iter().find(|row| row.connection == self);
        row.is_none_or(|row| row.is_closed_there)
    }
}

/// A row of the tables: a connection of this process, and its state.
struct Row {
    connection: Connection,
    is_open: bool,
    /// True if the other end has closed it, and this one has not.
    is_closed_there: bool,
}

impl Row {
    fn new(own: SocketAddr, peer: SocketAddr, state: u32) -> Self {
        let is = |other: i32| i32::try_from(state) == Ok(other);
        let connection = Connection { own, peer };
        Self { connection, is_open: is(MIB_TCP_STATE_ESTAB), is_closed_there: is(MIB_TCP_STATE_CLOSE_WAIT) }
    }
}

/// A port of a table, which has it in the network's order in its lower 16 bits.
fn port(number: u32) -> u16 {
    let [first, second, ..] = number.to_ne_bytes();
    u16::from_be_bytes([first, second])
}

/// The connections of this process; none if the system does not tell.
fn own() -> Vec<Row> {
    let process = std::process::id();
    let v4 = |ip: u32, number| SocketAddr::new(Ipv4Addr::from(ip.to_ne_bytes()).into(), port(number));
    let v6 = |ip, number| SocketAddr::new(IpAddr::V6(Ipv6Addr::from(ip)).to_canonical(), port(number));
    // SAFETY: each family's table has this kind of rows.
    let (rows4, rows6) = unsafe {
        (table::<MIB_TCPROW_OWNER_PID>(AF_INET.into()), table::<MIB_TCP6ROW_OWNER_PID>(AF_INET6.into()))
    };
    let rows4 = rows4.into_iter().filter(|row| row.dwOwningPid == process).map(|row| {
        let (own, peer) = (v4(row.dwLocalAddr, row.dwLocalPort), v4(row.dwRemoteAddr, row.dwRemotePort));
        Row::new(own, peer, row.dwState)
    });
    let rows6 = rows6.into_iter().filter(|row| row.dwOwningPid == process).map(|row| {
        let (own, peer) = (v6(row.ucLocalAddr, row.dwLocalPort), v6(row.ucRemoteAddr, row.dwRemotePort));
        Row::new(own, peer, row.dwState)
    });
    rows4.chain(rows6).collect()
}

/// The rows of the connections of an address family; none if the system does not tell.
///
/// # Safety
/// `T` is the structure of a row of this family's table with the numbers of processes.
unsafe fn table<T: Copy>(family: u32) -> Vec<T> {
    let mut room: Vec<u32> = vec![0; 1 << 12];
    loop {
        let Ok(mut bytes) = u32::try_from(size_of_val(&room[..])) else { return Vec::new() };
        // SAFETY: as many bytes as stated may be written.
        let code = unsafe {
            let to = room.as_mut_ptr().cast();
            GetExtendedTcpTable(to, &raw mut bytes, 0, family, TCP_TABLE_OWNER_PID_CONNECTIONS, 0)
        };
        match code {
            NO_ERROR => break,
            // There may be more of them at the next try.
            ERROR_INSUFFICIENT_BUFFER => room.resize(room.len() * 2 + bytes as usize / size_of::<u32>(), 0),
            _ => return Vec::new(),
        }
    }
    let count = (room[0] as usize).min(size_of_val(&room[1..]) / size_of::<T>());
    // SAFETY: the number of rows is followed by the rows, whose fields are of 4 bytes or of single ones; `count` is
    // limited to what has room here.
    unsafe { std::slice::from_raw_parts(room.as_ptr().add(1).cast::<T>(), count) }.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    #[test]
    fn connections_that_the_other_end_closed_have_ended() {
        let listeners = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let servers = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
        let mut ours = servers.map(|server| TcpStream::connect(server).unwrap());
        let mut theirs = listeners.each_ref().map(|listener| listener.accept().unwrap().0);
        // wine knows whose a connection is once something has come through it.
        for (ours, theirs) in ours.iter_mut().zip(&mut theirs) {
            theirs.write_all(b"some").unwrap();
            ours.read_exact(&mut [0; 4]).unwrap();
        }
        assert!(ours.iter().all(|own| is_own(own.local_addr().unwrap())));
        assert!(!is_own((Ipv4Addr::LOCALHOST, 1).into()));
        let to = servers.map(|server| open_to(&[server]));
        assert!(to.iter().all(|to| to.len() == 1) && to[0] != to[1], "{to:?}");
        assert!(!to[0][0].has_ended() && !to[1][0].has_ended());
        let [first, second] = theirs;
        drop(first);
        // Until the system has told the other end.
        while !to[0][0].has_ended() {
            std::thread::yield_now();
        }
        assert!(!to[1][0].has_ended() && open_to(&[servers[0]]).is_empty());
        drop((ours, second));
    }
}
