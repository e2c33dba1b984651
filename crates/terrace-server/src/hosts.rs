//! The names that requests may be sent to.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Names under which clients may address the server. The owner of any other name can make it point to this
/// machine (DNS rebinding).
pub struct Hosts {
    /// The names that it was given.
    given: Vec<String>,
    /// The machine's own name.
    machine: Option<String>,
}

/// Endings that no public name server can hand out: ICANN keeps `internal` free for private networks, where
/// `host.docker.internal` is, and `local` belongs to multicast DNS (RFC 6762).
const PRIVATE: [&str; 2] = [".internal", ".local"];

impl Hosts {
    /// Takes these names, in upper or lower case; `*` stands for all.
    pub fn new(names: &[String], machine: Option<String>) -> Self {
        let machine = machine.map(|name| plain(&name)).filter(|name| !name.is_empty());
        Self { given: names.iter().map(|name| plain(name)).collect(), machine }
    }

    /// Returns true if a request with this `Host`, a name with or without a port, may be answered.
    pub fn allow(&self, host: &str) -> bool {
        self.are_own(host) || self.are_private(host)
    }

    /// Returns true if a page of this host is the server's own: an IP address, a name of this machine for
    /// itself, or one that the server was given.
    pub fn are_own(&self, host: &str) -> bool {
        let name = plain(without_port(host));
        is_number(&name)
            || name == "localhost"
            || name.ends_with(".localhost")
            || self.given.iter().any(|allowed| allowed == "*" || *allowed == name)
    }

    /// Returns true for names that only the network can hand out that the machine is in. Programs may use
    /// them; pages of such a name are those of whoever has it there.
    fn are_private(&self, host: &str) -> bool {
        let name = plain(without_port(host));
        let private = |ending: &str| {
            name.strip_suffix(ending).is_some_and(|rest| !rest.is_empty() && !rest.ends_with('.'))
        };
        PRIVATE.iter().any(|ending| private(ending)) || self.machine.as_ref() == Some(&name)
    }
}

/// Normalises a name: without a dot at its end, in lower case.
fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Returns true if the text is an IP address rather than a name, so that nobody can make it point
/// elsewhere.
fn is_number(name: &str) -> bool {
    let six = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    six.map_or_else(|| name.parse::<Ipv4Addr>().is_ok(), |six| six.parse::<Ipv6Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_localhost_and_what_was_named_are_allowed() {
        let hosts = Hosts::new(&["Box.lan".into(), "terrace".into()], Some("Laptop".into()));
        for host in [
            "127.0.0.1",
            "127.0.0.1:8080",
            "192.168.1.7:80",
            "[::1]",
            "[::1]:8080",
            "localhost",
            "LOCALHOST:8080",
            "localhost.:1",
            "a.localhost:1",
            "box.lan:8080",
            "terrace",
        ] {
            assert!(hosts.allow(host), "{host}");
        }
        for host in [
            "",
            ":8080",
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "evillocalhost",
            "127.0.0.1.evil.example",
            "127.0.0.1:80:evil",
            "[::1].evil.example",
            "[evil.example]",
            "lan",
            "1.2.3",
            ".local",
            "..local",
            "local",
            "internal",
            "host.docker.internal.evil.example",
            "notinternal",
            "laptop.evil.example",
            "x.home",
        ] {
            assert!(!hosts.allow(host), "{host}");
        }
        for host in ["host.docker.internal:8080", "gateway.internal.", "Box.local:80", "laptop", "LAPTOP:1"] {
            assert!(hosts.allow(host) && !hosts.are_own(host), "{host}");
        }
        assert!(!Hosts::new(&[], Some(String::new())).allow(""));
        assert!(Hosts::new(&["*".into()], None).allow("any.example:1"));
    }
}
