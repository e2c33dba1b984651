//! `terrace worker`: lends this machine's devices, or its CPU, to Terrace or llama.cpp on another
//! machine, over ggml's RPC.

mod address;
mod args;

pub use args::WorkerArgs;

use std::fs::File;
use std::io::Write;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use terrace_cli::error::CliError;
use terrace_cli::term::signals;
use terrace_cli::user_dirs::user_dirs;
use terrace_ggml::devices::rpc::{Lent, RpcError, answer_heartbeats, is_serving, open_cache, serve_rpc};
use terrace_ggml::devices::{DeviceHandle, DeviceKind, devices};
use terrace_model::ByteSize;
use terrace_plan::machine::{auto_reserve, device_room};
use terrace_platform::process::{end_at_once, take_stdout};

/// Serves until Ctrl-C or SIGTERM.
///
/// # Errors
/// The address is not free or not safe, there is no such device or not that much memory, or the cache
/// cannot be used.
pub fn worker(args: &WorkerArgs) -> Result<(), CliError> {
    let address = address::address(&args.listen, args.i_know_this_network_is_trusted)?;
    let cores = terrace_host::cores();
    let lent = Lent {
        devices: lent(&args.device, args.memory)?,
        threads: args.threads.unwrap_or(cores) as usize,
        cache: cache(args, address.port())?,
    };
    if let Some(folder) = &lent.cache {
        open_cache(folder)?;
    }
    if let Err(error) = answer_heartbeats(address, &lent) {
        tracing::warn!("clients cannot ask whether this worker is alive: {address}: {error}");
    }
    signals::on_terminate()?;
    signals::busy(|| {
        // ggml writes its own lines to stdout.
        let stdout = take_stdout().map_err(CliError::io("stdout"))?;
        let line = line(address, &lent);
        let (server, ended) = start(address, lent)?;
        say(stdout, address, &line, &server);
        signals::wait(|| server.is_finished());
        if signals::interrupted() {
            // ggml's threads may be computing with what an orderly end would free.
            terrace_cli::term::messages::flush();
            end_at_once(0);
        }
        Err(ended.recv().unwrap_or_else(|_| RpcError::Serve { endpoint: address.to_string() }).into())
    })
}

/// The devices to lend, each with the bytes that clients may use.
fn lent(names: &[String], memory: Option<ByteSize>) -> Result<Vec<(DeviceHandle, ByteSize)>, CliError> {
    let all: Vec<DeviceHandle> = devices().into_iter().filter(|device| !device.is_remote()).collect();
    let lendable = |device: &&DeviceHandle| device.is_accelerator() || device.kind() == DeviceKind::Cpu;
    let accelerators: Vec<DeviceHandle> =
        all.iter().copied().filter(|device| device.is_accelerator()).collect();
    let chosen = match names {
        [] if accelerators.is_empty() => vec![DeviceHandle::cpu()],
        [] => accelerators,
        names => {
            let find = |name: &String| {
                let found = all.iter().filter(lendable).find(|device| device.name() == *name).copied();
                found.ok_or_else(|| CliError::Usage {
                    message: format!("there is no device {name}"),
                    hint: format!(
                        "the devices are {}",
                        all.iter()
                            .filter(lendable)
                            .map(|device| device.name())
                            .collect::<Vec<_>>()
                            .join(", ")
                    ),
                })
            };
            names.iter().map(find).collect::<Result<_, _>>()?
        }
    };
    chosen.into_iter().map(|device| Ok((device, memory_of(device, memory)?))).collect()
}

/// The bytes of a device that clients may use.
fn memory_of(device: DeviceHandle, wanted: Option<ByteSize>) -> Result<ByteSize, CliError> {
    let cpu = device.kind() == DeviceKind::Cpu;
    let (free, total) = match cpu {
        true => (terrace_host::available_memory(), terrace_host::total_memory()),
        false => device.memory(),
    };
    match wanted {
        None if cpu => Ok(free.saturating_sub(auto_reserve(free))),
        None => Ok(device_room(free)),
        Some(size) if size > total.max(free) => Err(CliError::Usage {
            message: format!("--memory {size}: {} has {total}", device.name()),
            hint: format!("{free} of it is free now"),
        }),
        Some(size) => Ok(size),
    }
}

/// The folder of the cache.
fn cache(args: &WorkerArgs, port: u16) -> Result<Option<PathBuf>, CliError> {
    match &args.cache {
        Some(off) if off.as_os_str() == "off" => Ok(None),
        Some(folder) => Ok(Some(std::path::absolute(folder).map_err(CliError::io("--cache"))?)),
        // A user without a home has no cache.
        None => Ok(user_dirs().cache.map(|cache| cache.join("worker").join(port.to_string()))),
    }
}

/// Starts the thread that serves. Its error, if it ends, is received.
fn start(address: SocketAddrV4, lent: Lent) -> Result<(JoinHandle<()>, Receiver<RpcError>), CliError> {
    let (failed, ended) = channel();
    let serve = move || {
        // The main thread ends the process without waiting for it.
        let _ = failed.send(serve_rpc(address, &lent));
        signals::wake();
    };
    let thread = std::thread::Builder::new().name("terrace-worker".into()).spawn(serve);
    Ok((thread.map_err(CliError::io("a thread"))?, ended))
}

/// Prints the line as soon as clients can connect.
fn say(mut stdout: File, address: SocketAddrV4, line: &str, server: &JoinHandle<()>) {
    const POLL_INTERVAL: Duration = Duration::from_millis(5);
    while !is_serving(address) {
        if server.is_finished() || signals::interrupted() {
            return;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    // Nobody may be there to read it.
    let _ = writeln!(stdout, "{line}");
}

fn line(address: SocketAddrV4, lent: &Lent) -> String {
    let device = |(device, memory): &(DeviceHandle, ByteSize)| match device.kind() {
        DeviceKind::Cpu => format!("{} ({memory}, {} threads)", device.name(), lent.threads),
        _ => format!("{} ({memory})", device.name()),
    };
    let devices: Vec<String> = lent.devices.iter().map(device).collect();
    let cache = lent.cache.as_ref().map_or_else(|| "off".into(), |folder| folder.display().to_string());
    format!("worker at {address}: {}; cache {cache}", devices.join(", "))
}
