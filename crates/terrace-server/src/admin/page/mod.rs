//! A page that shows the server's state and its experts, with a chat.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use std::sync::LazyLock;

/// The page's sources in one text, because it loads nothing, not even from this server.
static PAGE: LazyLock<String> = LazyLock::new(|| {
    let script = [
        include_str!("common.js"),
        include_str!("status.js"),
        include_str!("lanes.js"),
        include_str!("plan.js"),
        include_str!("chart.js"),
        include_str!("grid.js"),
        include_str!("experts.js"),
        include_str!("chat.js"),
    ];
    include_str!("index.html")
        .replace("/* style.css */", include_str!("style.css"))
        .replace("/* *.js */", &script.concat())
});

/// `GET /`: the page.
pub async fn page() -> Response {
    const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
        img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    let headers =
        [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, POLICY)];
    (headers, PAGE.as_str()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_complete_and_loads_nothing() {
        assert!(PAGE.contains("<title>Terrace</title>") && PAGE.contains("color-scheme"));
        assert!(!PAGE.contains("/* style.css */") && !PAGE.contains("/* *.js */"));
        for outside in ["http://", "https://", "src=", "@import", "</script><script"] {
            assert!(!PAGE.replace("http://www.w3.org/2000/svg", "").contains(outside), "{outside}");
        }
        // What the script looks for is there.
        for id in PAGE.split("at(\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(PAGE.contains(&format!("id=\"{id}\"")), "{id}");
        }
    }
}
