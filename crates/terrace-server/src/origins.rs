//! Web pages of other origins that may use the server.

/// The name of all origins.
const ALL: &str = "*";
/// The name of all pages of this machine, which are allowed anyway.
const LOCAL: &str = "localhost";
const LOCAL_HOSTS: [&str; 4] = ["localhost", "127.0.0.1", "[::1]", "0.0.0.0"];
/// Schemes of desktop applications: no web page has them.
const APPLICATIONS: [&str; 5] = ["app://", "tauri://", "vscode-webview://", "vscode-file://", "file://"];
/// Schemes of browsers' extensions, which are allowed by name only.
const EXTENSIONS: [&str; 3] = ["chrome-extension://", "moz-extension://", "safari-web-extension://"];
/// The origin of pages that have none, such as files, and of what any page puts into a sandbox.
const NONE: &str = "null";

/// Origins that may use the server.
#[derive(Clone, Debug, Default)]
pub struct Origins(Vec<String>);

impl Origins {
    /// Allows these origins besides pages of this machine and applications; `*` stands for all, and `*` after
    /// a scheme for all that have it.
    pub const fn new(allowed: Vec<String>) -> Self {
        Self(allowed)
    }

    /// Returns true if all are allowed.
    pub fn all(&self) -> bool {
        self.0.iter().any(|allowed| allowed == ALL)
    }

    /// Returns true if an origin is allowed.
    pub fn allow(&self, origin: &str) -> bool {
        let named = |allowed: &String| {
            let scheme = allowed.strip_suffix(ALL).filter(|scheme| scheme.ends_with("://"));
            allowed == ALL || allowed == origin || scheme.is_some_and(|scheme| origin.starts_with(scheme))
        };
        is_local(origin) || is_of(&APPLICATIONS, origin) || self.0.iter().any(named)
    }
}

/// Checks a value of `--cors-origin`.
///
/// # Errors
/// It is not an origin.
pub fn checked_origin(text: &str) -> Result<String, &'static str> {
    let plain = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_graphic() && b != b'/');
    let web = ["https://", "http://"].iter().any(|scheme| text.strip_prefix(scheme).is_some_and(plain));
    let other = || {
        let rest = APPLICATIONS.iter().chain(&EXTENSIONS).find_map(|scheme| text.strip_prefix(scheme));
        rest.is_some_and(|rest| plain(rest) || (rest.is_empty() && text == "file://"))
    };
    if web || [ALL, LOCAL, NONE].contains(&text) || other() {
        return Ok(text.to_owned());
    }
    Err(
        "must be like https://example.org, http://localhost:3000, app://obsidian.md or chrome-extension://ID \
         (chrome-extension://* for all), null, localhost, or *",
    )
}

fn is_of(schemes: &[&str], origin: &str) -> bool {
    schemes.iter().any(|scheme| origin.starts_with(scheme))
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
        let origins = Origins::new(vec!["https://good.example".into()]);
        for allowed in [
            "http://localhost",
            "http://localhost:8080",
            "https://127.0.0.1:3000",
            "http://0.0.0.0:3000",
            "http://[::1]",
            "http://[::1]:3000",
            "https://good.example",
            "app://obsidian.md",
            "tauri://localhost",
            "vscode-webview://0abc",
            "file://",
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
            "chrome-extension://abc",
            "https://good.example:8080",
            "http://app://x",
        ] {
            assert!(!origins.allow(not), "{not}");
        }
        assert!(!origins.all() && Origins::new(vec!["*".into()]).all());
    }

    #[test]
    fn what_an_error_recommends_is_taken_and_works() {
        for origin in [
            "app://obsidian.md",
            "tauri://localhost",
            "vscode-webview://0abc",
            "chrome-extension://abcdef",
            "moz-extension://0-1-2",
            "file://",
            "null",
            "https://example.org",
            "http://box.lan:3000",
        ] {
            let checked = checked_origin(origin).unwrap();
            assert!(Origins::new(vec![checked]).allow(origin), "{origin}");
        }
        let extensions = Origins::new(vec![checked_origin("chrome-extension://*").unwrap()]);
        assert!(extensions.allow("chrome-extension://x") && !extensions.allow("moz-extension://x"));
        for not in
            ["", "example.org", "https://", "https://example.org/", "javascript:x", "app://", "ftp://x"]
        {
            assert!(checked_origin(not).is_err(), "{not}");
        }
    }
}
