//! Introduces a server to ggml, which then uses the connection that the server was greeted on.
//!
//! ggml can only connect by itself, and closes its connection whenever nothing of the server is in use. In
//! between another client may take the server, which serves one at a time, and ggml waits for that for
//! ever. So ggml connects to this process, which tells what the server has said before
//! ([`Facts`]), and ggml's end of that connection is replaced by the connection to the server
//! (`dup2`), which a backend that is never freed keeps in use.

use super::error::RpcError;
use super::greeting::{Facts, Greeted};
use super::wire::{CAPABILITIES, DEVICE_COUNT, GET_ALIGNMENT, GET_MAX_SIZE, HELLO, PROTOCOL};
use crate::cxx::{calls, guard_assertions};
use crate::devices::{registry, remote};
use crate::handles::{DeviceHandle, OF_SERVER};
use llama_cpp_sys_2 as sys;
use std::ffi::{CString, c_char};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_platform::{connections, thread_names};

/// ggml's function that asks a server for its devices. It starts a thread, and throws where it cannot.
pub type AddServer = unsafe extern "C-unwind" fn(*const c_char) -> sys::ggml_backend_reg_t;

/// Registers a server's devices with ggml, and returns them.
///
/// # Errors
/// If ggml has no thread or memory for it, or the connection cannot be handed over.
pub fn introduce(endpoint: &str, greeted: Greeted, add: AddServer) -> Result<Vec<DeviceHandle>, RpcError> {
    let hand_over = |source| RpcError::HandOver { endpoint: endpoint.into(), source };
    let Greeted { conversation, devices } = greeted;
    // Where none can take the place of another, ggml makes its own.
    let kept = connections::CAN_BE_REPLACED.then_some(conversation);
    let speaker = kept.is_some().then(|| Speaker::start(devices)).transpose().map_err(hand_over)?;
    // ggml connects to what stands before the separator, and shows the whole as the devices' description.
    let name = speaker.as_ref().map_or_else(String::new, |speaker| format!("{}{OF_SERVER}", speaker.address));
    let name = CString::new(name + endpoint);
    let name = name.map_err(|_| RpcError::Address { endpoint: endpoint.into() })?;
    let number = remote::note_server(endpoint);
    // The thread of ggml that talks to the server is started by this one, and inherits the name.
    let named = thread_names::name_this(&remote::thread_name(number));
    let introduced = guard_assertions(|| {
        // SAFETY: a C string; the registry, its devices and their buffer types live as long as the process.
        unsafe {
            let registry = add(name.as_ptr());
            let count = if registry.is_null() { 0 } else { sys::ggml_backend_reg_dev_count(registry) };
            let mut devices = Vec::with_capacity(count);
            for index in 0..count {
                let device = sys::ggml_backend_reg_dev_get(registry, index);
                // Never freed, so that ggml keeps the connection.
                if index == 0 && calls::ggml_backend_dev_init(device, std::ptr::null()).is_null() {
                    return (registry, Vec::new());
                }
                // Asks the last of what the speaker answers.
                sys::ggml_backend_dev_buffer_type(device);
                devices.extend(NonNull::new(device).map(DeviceHandle));
            }
            (registry, devices)
        }
    });
    drop(named);
    let (registry, devices) =
        introduced.map_err(|source| RpcError::Ggml { endpoint: endpoint.into(), source })?;
    if devices.is_empty() {
        return Err(RpcError::NoDevices { endpoint: endpoint.into() });
    }
    if let (Some(speaker), Some(conversation)) = (&speaker, kept) {
        let stream = conversation.into_stream().map_err(hand_over)?;
        hand_connection(speaker.address, stream).map_err(hand_over)?;
    }
    drop(speaker);
    // SAFETY: complete, and lives as long as the process.
    unsafe { registry::add(registry) };
    Ok(devices)
}

/// Replaces this process's connection to an address by another one. Nothing waits at the former: ggml's
/// thread has nothing to ask.
fn hand_connection(address: SocketAddr, stream: TcpStream) -> io::Result<()> {
    match connections::open_to(&[address])[..] {
        [connection] => connection.replace(stream),
        _ => Err(io::Error::other("ggml has no connection")),
    }
}

/// Answers ggml's first questions in a server's place.
struct Speaker {
    address: SocketAddr,
    over: Arc<AtomicBool>,
}

impl Speaker {
    fn start(devices: Vec<Facts>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let speak = move || {
            while let Ok((stream, from)) = listener.accept() {
                if ends.load(Ordering::Acquire) {
                    return;
                }
                // Other programs have no business here.
                if connections::is_own(from) {
                    // It ends when ggml closes it, or when the server's connection takes its place.
                    let _ = answer(stream, &devices);
                }
            }
        };
        std::thread::Builder::new().name("terrace-introduction".into()).spawn(speak)?;
        Ok(Self { address, over })
    }
}

impl Drop for Speaker {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        // Wakes the thread, which ends by itself: at once, unless ggml has kept its connection.
        let _ = TcpStream::connect(self.address);
    }
}

/// Answers on a connection of ggml's until it is closed.
fn answer(mut stream: TcpStream, devices: &[Facts]) -> io::Result<()> {
    stream.set_nodelay(true)?;
    loop {
        let (mut command, mut size) = ([0], [0; 8]);
        stream.read_exact(&mut command)?;
        stream.read_exact(&mut size)?;
        let mut request = [0; CAPABILITIES];
        let request = usize::try_from(u64::from_le_bytes(size)).ok().and_then(|len| request.get_mut(..len));
        let request = request.ok_or(ErrorKind::InvalidData)?;
        stream.read_exact(request)?;
        let answer = told(command[0], request, devices).ok_or(ErrorKind::InvalidData)?;
        stream.write_all(&[&(answer.len() as u64).to_le_bytes(), &answer[..]].concat())?;
    }
}

/// The answer to a question; `None` if it is about nothing that never changes.
fn told(command: u8, request: &[u8], devices: &[Facts]) -> Option<Vec<u8>> {
    let device = || devices.get(u32::from_le_bytes(request.try_into().ok()?) as usize);
    Some(match command {
        HELLO => {
            let mut answer = vec![PROTOCOL.0, PROTOCOL.1, 0, 0];
            answer.resize(4 + CAPABILITIES, 0);
            answer
        }
        DEVICE_COUNT => u32::try_from(devices.len()).ok()?.to_le_bytes().into(),
        GET_ALIGNMENT => device()?.alignment.to_le_bytes().into(),
        GET_MAX_SIZE => device()?.max_size.to_le_bytes().into(),
        _ => return None,
    })
}
