//! Shared parts of this program's HTTP clients.

use std::time::Duration;
use ureq::Agent;
use ureq::http::uri::Uri;
use ureq::tls::{RootCerts, TlsConfig};

/// Makes a client that takes at most `connect` until a connection stands, and `read` until each read
/// brings something. Errors of the server and redirections are answers.
pub fn agent(connect: Duration, read: Duration) -> Agent {
    // The system's certificates, as networks with a root of their own need them.
    let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_connect(Some(connect))
        .timeout_per_read(Some(read))
        .user_agent(concat!("terrace/", env!("CARGO_PKG_VERSION")))
        .tls_config(tls);
    config.build().new_agent()
}

/// Returns true if an address is one of a server of HTTP.
pub fn has_server(uri: &Uri) -> bool {
    matches!(uri.scheme_str(), Some("http" | "https")) && uri.authority().is_some()
}
