//! Addresses of RPC servers.

use std::net::{SocketAddr, ToSocketAddrs};

/// The addresses of a server `HOST:PORT`; none if its name cannot be resolved.
pub fn resolve(server: &str) -> Vec<SocketAddr> {
    server.to_socket_addrs().map_or_else(|_| Vec::new(), Iterator::collect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_address_has_none() {
        // A name is not tried: a machine need not know `localhost`.
        assert_eq!(resolve("127.0.0.1:50052"), ["127.0.0.1:50052".parse().unwrap()]);
        assert!(resolve("no such host:1").is_empty() && resolve("127.0.0.1").is_empty());
    }
}
