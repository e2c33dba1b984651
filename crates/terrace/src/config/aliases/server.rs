//! The server.

use super::Refusal;
use super::{
    Alias, Means, Opt, OptionUnless, Ours, Parsed, Refused, SERVE, Switch, Takes, alias, ignored,
    ignored_value,
};

const PAGE: &str = "the server has its own web page";
const TOOLS: &str = "the server runs no tools; clients do";
const CORS: &str = "--cors-origin ORIGIN lets pages use the server";
const MODELS: &str = "models are loaded when requests name them, as --models-memory allows";

/// A refusal in `serve`.
const fn no(names: &'static [&'static str], why: &'static str, hint: &'static str) -> Alias {
    alias(names, Refused(SERVE, Refusal { why, hint }))
}

pub const ALIASES: &[Alias] = &[
    alias(&["--embedding"], Switch("embeddings", None)),
    alias(&["--rerank"], Switch("reranking", None)),
    alias(&["--embd-normalize"], Parsed(SERVE, Takes::Value, embd_normalize)),
    no(&["--spm-infill"], "the model's file sets the order of the parts of an infill prompt", "leave it out"),
    ignored_value(&["--tags"], "models are listed without tags"),
    alias(&["-a"], Opt("alias")),
    alias(&["-to"], Opt("timeout")),
    ignored_value(&["--sse-ping-interval"], "streams have no pings"),
    alias(&["--sleep-idle-seconds"], OptionUnless("keep-alive", &["-1"])),
    alias(&["--prefill-assistant", "--slots", "--webui", "--ui", "--metrics"], Means::Always(SERVE)),
    no(
        &["--no-prefill-assistant"],
        "a final message of the assistant is continued",
        "let clients end the conversation with a user message",
    ),
    alias(&["--no-agent", "-no-ag"], Means::Always(SERVE)),
    ignored(&["--no-slots"], "GET /slots stays enabled; --api-key restricts access"),
    ignored(&["--no-webui", "--no-ui"], "the web page stays enabled; --api-key restricts access"),
    ignored_value(&["--ui-config", "--webui-config", "--ui-config-file", "--webui-config-file"], PAGE),
    ignored(&["--ui-mcp-proxy", "--webui-mcp-proxy"], TOOLS),
    alias(&["--no-ui-mcp-proxy", "--no-webui-mcp-proxy"], Means::Always(SERVE)),
    ignored_value(&["--tools", "--tools-runtime", "--mcp-servers-config", "--mcp-servers-json"], TOOLS),
    ignored(&["--agent", "-ag"], TOOLS),
    ignored_value(&["--path"], PAGE),
    ignored_value(&["--media-path"], "images are sent with requests, not read from files on the server"),
    no(&["--api-prefix"], "all paths begin with /", "let a proxy remove the prefix"),
    ignored(&["--reuse-port"], "one process listens on the port"),
    alias(&["--cors-origins"], Opt("cors-origin")),
    ignored_value(&["--cors-methods", "--cors-headers"], CORS),
    ignored(&["--cors-credentials", "--no-cors-credentials"], CORS),
    ignored_value(&["--threads-http"], "one thread serves all clients"),
    ignored_value(
        &["-sps", "--slot-prompt-similarity"],
        "a request gets the server slot that holds most of its prompt",
    ),
    no(
        &["--models-preset"],
        "models have sections in the configuration file",
        "write sections [models.NAME]; see docs/guide/models.md",
    ),
    ignored_value(&["--models-max"], MODELS),
    alias(&["--models-autoload"], Means::Always(SERVE)),
    ignored(&["--no-models-autoload"], MODELS),
];

/// `--embd-normalize N`: 2 is the Euclidean norm, which requests get that say nothing.
fn embd_normalize(value: &str) -> Result<Ours, Refusal> {
    match value {
        "2" => Ok(Ours::default()),
        _ => Err(Refusal {
            why: "embeddings are normalised by their Euclidean norm, unless a request says otherwise",
            hint: "set `embd_normalize` in requests to /embedding",
        }),
    }
}
