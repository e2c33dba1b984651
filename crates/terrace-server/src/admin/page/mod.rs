//! A page with a chat, beside the server's state and its experts.

mod assets;

use crate::error::ApiError;
use assets::{ASSETS, Asset};
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flate2::read::GzDecoder;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::LazyLock;

/// Path of the page's files.
pub const FILES: &str = "/page/";

/// Permissions of the page: to load its own files and ask its own server. Scripts cannot turn a text into
/// HTML or code.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// Headers of the page and its files. Browsers keep them, and ask whether they are still the same.
const HEADERS: [(HeaderName, &str); 4] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-cache"),
];

const INDEX: &str = include_str!("index.html");

/// `GET /`: the page.
pub async fn page(headers: HeaderMap) -> Response {
    file("", "text/html; charset=utf-8", Cow::Borrowed(INDEX.as_bytes()), &headers)
}

/// `GET /page/{path}`: a file of the page.
///
/// # Errors
/// There is no such file.
pub async fn page_file(
    path: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let Path(path) = path.map_err(|error| ApiError::request(error.body_text()))?;
    let asset = ASSETS.iter().find(|asset| asset.path == path);
    let asset = asset.ok_or_else(|| ApiError::not_found(&format!("{FILES}{path}")))?;
    let sends_packed = asset.is_packed && takes_gzip(&headers);
    let bytes = if asset.is_packed && !sends_packed { unpacked(asset) } else { Cow::Borrowed(asset.bytes) };
    let mut response = file(asset.path, asset.content_type(), bytes, &headers);
    if asset.is_packed {
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    }
    if sends_packed && response.status() == StatusCode::OK {
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(response)
}

/// Returns true if a client takes responses that are compressed with gzip.
fn takes_gzip(asked: &HeaderMap) -> bool {
    let lists = asked.get_all(header::ACCEPT_ENCODING).iter().filter_map(|list| list.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|one| {
        let (name, weight) = one.split_once(';').unwrap_or((one, ""));
        let weight = weight.split_once('=').map_or("1", |(_, weight)| weight.trim());
        name.trim().eq_ignore_ascii_case("gzip") && weight.parse::<f32>().is_ok_and(|weight| weight > 0.0)
    })
}

/// A file's own bytes, for clients that are no browsers.
fn unpacked(asset: &Asset) -> Cow<'static, [u8]> {
    let mut bytes = Vec::new();
    GzDecoder::new(asset.bytes).read_to_end(&mut bytes).expect("the build script has packed it");
    Cow::Owned(bytes)
}

/// Answers with a file, unless the browser has it.
fn file(path: &str, content_type: &'static str, bytes: Cow<'static, [u8]>, asked: &HeaderMap) -> Response {
    let tag = &TAGS[path];
    let known = asked.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
    let is_known =
        known.is_some_and(|tags| tags.split(',').any(|known| known.trim().trim_start_matches("W/") == tag));
    let mut response = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => ([(header::CONTENT_TYPE, content_type)], bytes).into_response(),
    };
    let headers = response.headers_mut();
    headers.extend(HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value))));
    headers.extend(HeaderValue::from_str(tag).ok().map(|tag| (header::ETAG, tag)));
    response
}

/// Tags of the page (an empty path) and its files, by their bytes.
static TAGS: LazyLock<BTreeMap<&'static str, String>> = LazyLock::new(|| {
    let files = ASSETS.iter().map(|asset| (asset.path, asset.bytes));
    let tag = |bytes: &[u8]| {
        let digest = Sha256::digest(bytes);
        let text: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        format!("\"{text}\"")
    };
    files.chain([("", INDEX.as_bytes())]).map(|(path, bytes)| (path, tag(bytes))).collect()
});

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(path: &str, asked: &HeaderMap) -> Result<Response, ApiError> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(page_file(Ok(Path(path.to_owned())), asked.clone()))
    }

    #[test]
    fn the_page_names_only_files_that_there_are() {
        let named: Vec<&str> =
            INDEX.split("=\"page/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(named.len() > 7, "{named:?}");
        for path in named {
            assert!(ask(path, &HeaderMap::new()).is_ok(), "{path}");
        }
        // The policy allows no script or style within the page.
        for inline in ["<style", " style=", " onclick=", "javascript:", "http://", "https://"] {
            assert!(!INDEX.contains(inline), "{inline}");
        }
        assert_eq!(INDEX.matches("<script").count(), 1);
    }

    #[test]
    fn files_are_sent_once() {
        let first = ask("main.js", &HeaderMap::new()).unwrap();
        assert_eq!(first.status(), StatusCode::OK);
        assert_eq!(first.headers()[header::CONTENT_TYPE], "text/javascript; charset=utf-8");
        assert!(first.headers().contains_key(header::CONTENT_SECURITY_POLICY));
        let tag = first.headers()[header::ETAG].clone();
        let known = HeaderMap::from_iter([(header::IF_NONE_MATCH, tag)]);
        assert_eq!(ask("main.js", &known).unwrap().status(), StatusCode::NOT_MODIFIED);
        assert_eq!(ask("chat/turn.js", &known).unwrap().status(), StatusCode::OK);
        assert_eq!(ask("../mod.rs", &known).unwrap_err().status, StatusCode::NOT_FOUND);
    }

    #[test]
    fn libraries_are_sent_compressed_to_who_takes_that() {
        let bytes = |response: Response| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(axum::body::to_bytes(response.into_body(), usize::MAX)).unwrap()
        };
        let asks = |accepted: &'static str| {
            let accepted = HeaderValue::from_static(accepted);
            ask("vendor/katex.min.js", &HeaderMap::from_iter([(header::ACCEPT_ENCODING, accepted)])).unwrap()
        };
        let packed = asks("deflate, gzip;q=0.5");
        assert_eq!(packed.headers()[header::CONTENT_ENCODING], "gzip");
        assert_eq!(packed.headers()[header::VARY], "accept-encoding");
        assert_eq!(packed.headers()[header::CONTENT_TYPE], "text/javascript; charset=utf-8");
        let whole = include_bytes!("vendor/katex.min.js");
        assert!(bytes(packed).len() < whole.len() / 2);
        for accepted in ["identity", "gzip;q=0", "br, gzip; q=0.0"] {
            let response = asks(accepted);
            assert!(!response.headers().contains_key(header::CONTENT_ENCODING), "{accepted}");
            assert_eq!(bytes(response), &whole[..], "{accepted}");
        }
        let font = ask("vendor/fonts/KaTeX_Main-Regular.woff2", &HeaderMap::new()).unwrap();
        assert_eq!(font.headers()[header::CONTENT_TYPE], "font/woff2");
    }
}
