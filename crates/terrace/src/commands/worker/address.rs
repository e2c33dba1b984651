//! Address of a worker.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, ToSocketAddrs};
use terrace_cli::error::CliError;
use terrace_ggml::devices::rpc::RpcError;

/// Finds the address that a text names, and a free port if it is 0; the address is free then.
///
/// # Errors
/// The text is no address of this machine, other machines reach it and `trusted` is false, or another
/// program listens there.
pub fn address(text: &str, trusted: bool) -> Result<SocketAddrV4, CliError> {
    let listen = |source| CliError::Rpc(RpcError::Listen { endpoint: text.into(), source });
    let wrong = || CliError::Usage {
        message: format!("--listen {text}: expected HOST:PORT with an IPv4 address, or a port"),
        hint: "ggml's RPC has no IPv6; an address is like 127.0.0.1:50052".into(),
    };
    let (host, port) = text.rsplit_once(':').unwrap_or(("127.0.0.1", text));
    let port: u16 = port.parse().map_err(|_| wrong())?;
    let found: Vec<SocketAddr> = match host.parse::<Ipv4Addr>() {
        Ok(ip) => vec![(ip, port).into()],
        Err(_) if host.is_empty() || host.contains(':') => return Err(wrong()),
        Err(_) => (host, port).to_socket_addrs().map_err(listen)?.collect(),
    };
    let found = found.into_iter().find_map(|address| match address {
        SocketAddr::V4(address) => Some(address),
        SocketAddr::V6(_) => None,
    });
    let address = found.ok_or_else(wrong)?;
    if !address.ip().is_loopback() && !trusted {
        return Err(CliError::Usage {
            message: format!(
                "--listen {text}: other machines reach {}, and ggml's RPC has neither encryption nor authentication",
                address.ip()
            ),
            hint: "listen on 127.0.0.1 and use an SSH or WireGuard tunnel (docs/guide/workers.md), or add --i-know-this-network-is-trusted".into(),
        });
    }
    // ggml does not say why it cannot listen, or on which free port it does.
    let tried = TcpListener::bind(address).and_then(|socket| socket.local_addr()).map_err(|source| {
        listen(match source.kind() {
            ErrorKind::AddrInUse => io::Error::new(source.kind(), "the address is already in use"),
            _ => source,
        })
    })?;
    Ok(SocketAddrV4::new(*address.ip(), tried.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_need_no_trust() {
        for text in ["127.0.0.1:0", "0", "127.3.4.5:0"] {
            let address = address(text, false).unwrap();
            assert!(address.ip().is_loopback() && address.port() > 0, "{address}");
        }
        let error = address("0.0.0.0:0", false).unwrap_err().to_string();
        assert!(error.contains("neither encryption nor authentication"), "{error}");
        assert!(address("0.0.0.0:0", true).is_ok());
    }

    #[test]
    fn what_is_no_free_address_is_refused() {
        for text in ["", "127.0.0.1", "host:", ":50052", "127.0.0.1:70000", "[::1]:50052", "::1:50052"] {
            assert!(matches!(address(text, true), Err(CliError::Usage { .. })), "{text}");
        }
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let text = taken.local_addr().unwrap().to_string();
        let error = address(&text, false).unwrap_err().to_string();
        assert_eq!(error, format!("cannot listen on {text}: the address is already in use"));
        // An address of documentation, which no machine has.
        let error = address("192.0.2.1:0", true).unwrap_err().to_string();
        assert!(error.starts_with("cannot listen on 192.0.2.1:0: "), "{error}");
    }
}
