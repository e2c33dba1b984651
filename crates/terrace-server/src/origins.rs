//! Web pages of other origins that may use the server.

/// The name of all origins.
const ALL: &str = "*";
/// The name of all pages of this machine, whatever their port.
const LOCAL: &str = "localhost";
const LOCAL_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Origins that may use the server.
#[derive(Clone, Debug, Default)]
pub struct Origins(Vec<String>);

impl Origins {
    /// Allows these origins; `*` stands for all, and `localhost` for those of this machine.
    pub const fn new(allowed: Vec<String>) -> Self {
        Self(allowed)
    }

    /// Returns true if all are allowed.
    pub fn all(&self) -> bool {
        self.0.iter().any(|allowed| allowed == ALL)
    }

    /// Returns true if an origin is allowed.
    pub fn allow(&self, origin: &str) -> bool {
        self.0.iter().any(|allowed| match allowed.as_str() {
            ALL => true,
            LOCAL => is_local(origin),
            allowed => allowed == origin,
        })
    }
}

/// Returns true if an origin is a page of this machine.
fn is_local(origin: &str) -> bool {
    let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    host.is_some_and(|host| {
        LOCAL_HOSTS.iter().any(|local| {
            host.strip_prefix(local).is_some_and(|rest| {
                rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_this_machine_have_any_port() {
        let origins = Origins::new(vec!["localhost".into(), "https://good.example".into()]);
        for allowed in [
            "http://localhost",
            "http://localhost:8080",
            "https://127.0.0.1:3000",
            "http://[::1]",
            "http://[::1]:3000",
            "https://good.example",
        ] {
            assert!(origins.allow(allowed), "{allowed}");
        }
        for not in [
            "http://notlocalhost",
            "http://localhost.evil.example",
            "http://localhost:evil.example",
            "http://localhost:80:80",
            "http://127.0.0.10",
            "localhost",
            "null",
            "https://good.example:8080",
        ] {
            assert!(!origins.allow(not), "{not}");
        }
        assert!(!origins.all() && Origins::new(vec!["*".into()]).all());
    }
}
