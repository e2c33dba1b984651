//! Decides which requests are answered: those with a key, sent to one of the server's names, and
//! not from another site's web page.

use crate::actions::{self, Needs, Rights};
use crate::advice::Reason;
use crate::app::App;
use crate::error::ApiError;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;
use std::sync::Arc;

/// Passes requests on if they may be answered, with their [`Rights`].
///
/// # Errors
/// 401 without a required key, 403 with one that is not good for this request; 403 for other sites'
/// web pages, whose requests browsers send although the pages cannot read the answers. If no key is
/// required, 403 for names that are not the server's: to a browser, a page of a site whose name
/// points to this machine has the same origin, so that the page could read answers too.
pub async fn guard(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let headers = request.headers();
    if app.keys.are_none()
        && let Some(host) = named(&request).find(|host| !app.hosts.allow(host))
    {
        return Err(ApiError::foreign_host(host).with(app.advise(Reason::ForeignHost(host))));
    }
    let action = actions::of(request.method(), request.uri().path());
    let rights = Rights::of(&app.keys, headers);
    rights.check(action)?;
    let origin = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or("an unreadable origin"));
    if let Some(origin) = origin
        && action.needs() != Needs::Nothing
        && !is_own(origin, headers, &app)
        && !app.cors_origins.allow(origin)
    {
        return Err(ApiError::foreign_origin(origin).with(app.advise(Reason::ForeignOrigin(origin))));
    }
    request.extensions_mut().insert(rights);
    Ok(next.run(request).await)
}

/// The names that a request was sent to. There should be one; HTTP/1.0 has none.
fn named(request: &Request) -> impl Iterator<Item = &str> {
    let hosts = request.headers().get_all(header::HOST).iter();
    let hosts = hosts.map(|host| host.to_str().unwrap_or("an unreadable name"));
    hosts.chain(request.uri().authority().map(Authority::as_str))
}

/// Returns true if the page is the server's own. If no key is required, its name has to be the server's for certain.
fn is_own(origin: &str, headers: &HeaderMap, app: &App) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else { return false };
    origin.split_once("://").is_some_and(|(_, from)| host == from)
        && (!app.keys.are_none() || app.hosts.are_own(host))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ServerConfig;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())])
    }

    #[test]
    fn the_servers_own_page_may_ask() {
        let (host, app) = (headers("host", "localhost:8080"), App::new(&ServerConfig::default()));
        assert!(is_own("http://localhost:8080", &host, &app));
        assert!(!is_own("http://localhost:8081", &host, &app));
        assert!(!is_own("null", &host, &app));
        assert!(!is_own("https://evil.example", &host, &app));
    }

    /// Whoever is in the network of this machine may answer for such a name, and have pages under it.
    #[test]
    fn pages_of_private_names_are_not_the_servers_unless_it_was_given_the_name() {
        let host = headers("host", "box.local:8080");
        let app = |config| App::new(&config);
        let own = |app: App| is_own("http://box.local:8080", &host, &app);
        assert!(!own(app(ServerConfig::default())));
        assert!(own(app(ServerConfig { hosts: vec!["box.local".into()], ..ServerConfig::default() })));
        assert!(own(app(ServerConfig { keys: vec!["secret".into()], ..ServerConfig::default() })));
    }
}
