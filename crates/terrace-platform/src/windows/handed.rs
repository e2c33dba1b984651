//! Sockets that a process hands to a child: the child reads on its standard input by what it can open the socket.

use super::call::size;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::windows::io::RawSocket;
use std::process::{Child, Command, Stdio};
use windows_sys::Win32::Networking::WinSock::{
    FROM_PROTOCOL_INFO, INVALID_SOCKET, WSA_FLAG_NO_HANDLE_INHERIT, WSA_FLAG_OVERLAPPED, WSADuplicateSocketW,
    WSAGetLastError, WSAPROTOCOL_INFOW, WSASocketW,
};

/// The description of a socket for one other process, as bytes.
type Bytes = [u8; size::<WSAPROTOCOL_INFOW>() as usize];

/// Starts a program, and hands it a socket, which stays this process's own as well.
pub fn spawn(command: &mut Command, socket: RawSocket) -> io::Result<Child> {
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    let hand = |child: &mut Child| {
        let mut info = WSAPROTOCOL_INFOW::default();
        // SAFETY: an open socket, a child that has not been waited for, and room for the description.
        if unsafe { WSADuplicateSocketW(socket as usize, child.id(), &raw mut info) } != 0 {
            return Err(last());
        }
        // SAFETY: a structure of numbers without padding, as the system made it, of that size.
        let bytes: Bytes = unsafe { std::mem::transmute(info) };
        child.stdin.take().expect("a pipe").write_all(&bytes)
    };
    hand(&mut child).inspect_err(|_| {
        // It waits for the socket.
        let _ = child.kill();
        let _ = child.wait();
    })?;
    Ok(child)
}

/// Takes the socket that the parent has handed over.
pub fn take() -> io::Result<RawSocket> {
    // The first socket of Rust starts the system's library for them.
    drop(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?);
    let mut bytes: Bytes = [0; size::<WSAPROTOCOL_INFOW>() as usize];
    io::stdin().read_exact(&mut bytes)?;
    // SAFETY: a structure of numbers without padding, of that size.
    let info: WSAPROTOCOL_INFOW = unsafe { std::mem::transmute(bytes) };
    let (all, flags) = (FROM_PROTOCOL_INFO, WSA_FLAG_OVERLAPPED | WSA_FLAG_NO_HANDLE_INHERIT);
    // SAFETY: the description of a socket for this process.
    let socket = unsafe { WSASocketW(all, all, all, &raw const info, 0, flags) };
    if socket == INVALID_SOCKET { Err(last()) } else { Ok(socket as RawSocket) }
}

fn last() -> io::Error {
    // SAFETY: reads this thread's own number.
    io::Error::from_raw_os_error(unsafe { WSAGetLastError() })
}
