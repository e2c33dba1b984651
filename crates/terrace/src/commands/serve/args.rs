//! The options of `terrace serve`.

use super::sections::Sections;
use super::values::{KeyFile, Latency, LogFormat, key};
use clap::{ArgAction, Args};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use terrace_cli::args::{
    ChatTemplateArgs, DraftArgs, EngineArgs, MODEL_HELP, SamplingArgs, TestingArgs, Words, directory,
};
use terrace_engine::OnReload;
use terrace_engine::options::{
    AdapterOptions, EmbeddingOptions, PromptCacheOptions, ThinkingOptions, VisionOptions,
};
use terrace_model::ByteSize;
use terrace_plan::Budget;
use terrace_serving::BatchSlots;

/// `terrace serve`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub struct ServeArgs {
    #[doc = "MODEL."]
    #[arg(value_name = "MODEL", env = "TERRACE_MODEL", help = MODEL_HELP)]
    pub model: Option<OsString>,
    /// Address to listen on, a host name or an IP address; 0.0.0.0 for all addresses of this
    /// machine
    #[arg(long, value_name = "HOST", env = "TERRACE_HOST", default_value = "127.0.0.1")]
    pub host: String,
    /// Port to listen on; 0 picks a free one, which is printed on stdout
    #[arg(long, value_name = "PORT", env = "TERRACE_PORT", default_value_t = 8080)]
    pub port: u16,
    /// Name of the model in responses [default: its file's name]
    #[arg(long, value_name = "NAME", env = "TERRACE_ALIAS")]
    pub alias: Option<String>,
    /// Require this key (`Authorization: Bearer KEY`, or `x-api-key: KEY`); may be
    /// repeated. In the environment, where other users cannot see them, keys are separated by commas
    #[arg(long, value_name = "KEY", env = "TERRACE_API_KEY", hide_env_values = true, value_delimiter = ',', action = ArgAction::Append, value_parser = key)]
    pub api_key: Vec<String>,
    /// File with further keys, one a line; lines that begin with # have none
    #[arg(long, value_name = "FILE", env = "TERRACE_API_KEY_FILE")]
    pub api_key_file: Option<KeyFile>,
    /// Let only requests with this key change the state of the server: reload tensors, apply and save
    /// learn files, save and erase server slots, load and unload models. The key is good for all other
    /// requests as well; may be repeated [default: same access as other requests]
    #[arg(long, value_name = "KEY", env = "TERRACE_ADMIN_KEY", hide_env_values = true, value_delimiter = ',', action = ArgAction::Append, value_parser = key)]
    pub admin_key: Vec<String>,
    /// File with further keys for changes, one a line
    #[arg(long, value_name = "FILE", env = "TERRACE_ADMIN_KEY_FILE")]
    pub admin_key_file: Option<KeyFile>,
    /// Serve over TLS only (https), with this certificate or chain of certificates (PEM), and the key of
    /// --ssl-key-file. SIGHUP reads both files again
    #[arg(long, value_name = "FILE", env = "TERRACE_SSL_CERT_FILE")]
    pub ssl_cert_file: Option<PathBuf>,
    /// The key of the certificate (PEM)
    #[arg(long, value_name = "FILE", env = "TERRACE_SSL_KEY_FILE")]
    pub ssl_key_file: Option<PathBuf>,
    /// Let web pages from this origin (https://host, chrome-extension://ID, chrome-extension://* for all of
    /// them, null, or * for all) use the server, besides pages of this machine (localhost, any port) and
    /// desktop applications (app://, tauri://, vscode-webview://, file://); may be repeated
    #[arg(long, value_name = "ORIGIN", env = "TERRACE_CORS_ORIGIN", alias = "cors-origins", value_delimiter = ',', action = ArgAction::Append, value_parser = terrace_server::checked_origin)]
    pub cors_origin: Vec<String>,
    /// Let clients without a key address the server by this name (* for any), besides IP addresses,
    /// localhost, --host, the machine's name, *.internal and *.local; may be repeated. Needed behind a proxy that passes on its own name;
    /// with --api-key all names are allowed
    #[arg(long, value_name = "NAME", env = "TERRACE_ALLOWED_HOST", value_delimiter = ',', action = ArgAction::Append, value_parser = host_name)]
    pub allowed_host: Vec<String>,
    /// Serve all models of a directory (.gguf files; of split models, the first shards) and those of
    /// sections [models.NAME] of the configuration file. Each is loaded when a request names it, in a
    /// process of its own
    #[arg(long, value_name = "DIR", env = "TERRACE_MODELS_DIR", value_parser = directory)]
    pub models_dir: Option<PathBuf>,
    /// RAM for weights, contexts and kept conversations of all these models together. A model that needs some of it gets it from
    /// those that have gone unused for the longest [default: what is available]
    #[arg(
        long,
        value_name = "SIZE|auto",
        env = "TERRACE_MODELS_MEMORY",
        default_value = "auto",
        hide_default_value = true
    )]
    pub models_memory: Budget,
    /// Unload a model after this time without requests (5m, 1h, 30s); `off`: until others need its memory,
    /// and a single model always. Requests may set `keep_alive`, as with Ollama. With a time, a single MODEL
    /// is loaded by the first request, in a process of its own
    #[arg(long, value_name = "TIME|off", env = "TERRACE_KEEP_ALIVE", default_value = "off")]
    pub keep_alive: Latency,
    /// Number of requests computed at the same time, each with a context of --ctx tokens
    #[arg(long, value_name = "N", env = "TERRACE_PARALLEL", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub parallel: u32,
    /// Compute the next tokens of several requests in one pass: `exact`: where each gets what it gets
    /// alone; on: always, so that rounding, and thus an occasional token, may depend on the other
    /// requests; off: one by one
    #[arg(long, value_name = "exact|on|off", env = "TERRACE_BATCH_SLOTS", default_value = "exact", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub batch_slots: BatchSlots,
    /// Time limit per request in seconds; a request that exceeds it fails (504) [default: none]
    #[arg(long, value_name = "SECONDS", env = "TERRACE_TIMEOUT", value_parser = seconds)]
    pub timeout: Option<Duration>,
    /// Refuse requests with unknown fields [default: ignore these fields, and name them in the log and in the
    /// header `x-terrace-warning` of the response]
    #[arg(long, env = "TERRACE_STRICT")]
    pub strict: bool,
    /// Log a line for each request, with its id, path, status, tokens and times but none of its text, and
    /// all else as text or as JSON on stderr [default: only with -v, as text]
    #[arg(long, value_name = "text|json", env = "TERRACE_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Let clients upload files of requests and have them answered, behind all other requests (/v1/files, /v1/batches).
    /// Files and answers are kept in DIR, and batches go on when the server starts again [default: they may not]
    #[arg(long, value_name = "DIR", env = "TERRACE_BATCH_DIR")]
    pub batch_dir: Option<PathBuf>,
    /// Let clients change the default sampling parameters: samplers, seed and token limit (POST
    /// /props)
    #[arg(long, env = "TERRACE_PROPS")]
    pub props: bool,
    /// Let clients download models from the hub, as `hf:` does (POST /api/pull). They are not served
    #[arg(long, env = "TERRACE_ALLOW_PULL")]
    pub allow_pull: bool,
    /// Let clients delete models that were downloaded from the hub, except the one that is served
    /// (DELETE /api/delete)
    #[arg(long, env = "TERRACE_ALLOW_DELETE")]
    pub allow_delete: bool,
    /// Token limit per response, for requests that set none [default: until the model ends the text
    /// or the context is full]
    #[arg(short, help_heading = "Generate", value_name = "N", env = "TERRACE_N")]
    pub n: Option<usize>,
    /// Sampling, for requests that do not set it.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Conversations.
    #[command(flatten)]
    pub template: ChatTemplateArgs,
    #[command(flatten)]
    pub thinking: ThinkingOptions,
    /// Kept conversations.
    #[command(flatten)]
    pub prompt_cache: PromptCacheOptions,
    /// Embeddings.
    #[command(flatten)]
    pub embeddings: EmbeddingOptions,
    /// Drafts.
    #[command(flatten)]
    pub drafts: DraftArgs,
    /// Adapters.
    #[command(flatten)]
    pub adapters: AdapterOptions,
    /// Images.
    #[command(flatten)]
    pub vision: VisionOptions,
    /// Do not apply the adapters until clients ask for it (`lora` in requests, POST
    /// /lora-adapters)
    #[arg(long, help_heading = "Model", env = "TERRACE_LORA_INIT_WITHOUT_APPLY", requires = "lora")]
    pub lora_init_without_apply: bool,
    /// Placement.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Number of requests that may wait; further ones are refused (429)
    #[arg(long, help_heading = "Advanced", value_name = "N", env = "TERRACE_QUEUE", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub queue: u32,
    /// Longest wait of running requests for a token while part of another request's prompt is evaluated: such
    /// parts are made small enough, but not smaller than 16 tokens, nor, where they wait for disk, than a
    /// quarter of --ubatch. Rounding may differ in smaller parts. `off`: parts of --ubatch tokens
    #[arg(
        long,
        help_heading = "Advanced",
        value_name = "TIME|off",
        env = "TERRACE_PREFILL_LATENCY",
        default_value = "200ms"
    )]
    pub prefill_latency: Latency,
    /// Seconds that running requests have to finish after Ctrl-C or SIGTERM
    #[arg(long, help_heading = "Advanced", value_name = "SECONDS", env = "TERRACE_GRACE", default_value = "10", value_parser = seconds)]
    pub grace: Duration,
    /// Maximum number of open connections; requests of further ones are refused (503)
    #[arg(long, help_heading = "Advanced", value_name = "N", env = "TERRACE_MAX_CONNECTIONS", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub max_connections: u32,
    /// Close a connection that sends no request, or only part of its head, for this many seconds
    #[arg(long, help_heading = "Advanced", value_name = "SECONDS", env = "TERRACE_IDLE_TIMEOUT", default_value = "30", value_parser = some_seconds)]
    pub idle_timeout: Duration,
    /// Refuse a request (408) whose body is not complete after this many seconds
    #[arg(long, help_heading = "Advanced", value_name = "SECONDS", env = "TERRACE_BODY_TIMEOUT", default_value = "60", value_parser = some_seconds)]
    pub body_timeout: Duration,
    /// End a response and close its connection if the client reads nothing of it for this many
    /// seconds
    #[arg(long, help_heading = "Advanced", value_name = "SECONDS", env = "TERRACE_WRITE_TIMEOUT", default_value = "60", value_parser = some_seconds)]
    pub write_timeout: Duration,
    /// RAM for the bodies of all requests that are being read, without those of at most 64 KiB; when it
    /// is exhausted, requests wait for up to --body-timeout (503)
    #[arg(long, help_heading = "Advanced", value_name = "SIZE", env = "TERRACE_BODY_MEMORY", default_value = "64MiB", value_parser = body_memory)]
    pub body_memory: ByteSize,
    /// Reload tensors when the model's files change. SIGHUP and POST /v1/tensors/reload look for
    /// changes even without this option, but then files must be renamed into place; with it, no
    /// file is mapped, and files may be written to in place
    #[arg(long, help_heading = "Advanced", env = "TERRACE_WATCH")]
    pub watch: bool,
    /// Contexts after tensors are replaced
    #[arg(long, help_heading = "Advanced", value_name = "clear|keep", env = "TERRACE_ON_RELOAD")]
    #[arg(default_value = "clear")]
    pub on_reload: OnReload,
    /// Let clients save learn files in DIR (POST /moe-hot-cache with `save_to_disk`): the file of
    /// --learned, or one with the model's name. The old file gets a numbered backup [default: they
    /// may not]
    #[arg(long, help_heading = "Advanced", value_name = "DIR", env = "TERRACE_LEARN_DIR", value_parser = directory)]
    pub learn_dir: Option<PathBuf>,
    /// Testing.
    #[command(flatten)]
    pub testing: TestingArgs,
    /// Options as words of a command line, for the processes of several models.
    #[arg(skip)]
    pub words: Words,
    /// The sections of the configuration file.
    #[arg(skip)]
    pub sections: Sections,
}

/// The options that concern clients and not a model, which processes of several models are not given.
pub const OF_CLIENTS: [&str; 19] = [
    "host",
    "port",
    "alias",
    "api-key",
    "api-key-file",
    "admin-key",
    "admin-key-file",
    "ssl-cert-file",
    "ssl-key-file",
    "cors-origin",
    "allowed-host",
    "models-dir",
    "models-memory",
    "keep-alive",
    "max-connections",
    "idle-timeout",
    "body-timeout",
    "body-memory",
    "learn-dir",
];

impl ServeArgs {
    /// Returns true if several models are served.
    pub fn has_several(&self) -> bool {
        self.model.is_none()
            && (self.models_dir.is_some() || self.sections.values().any(|section| section.model.is_some()))
    }

    /// Returns true if one model is served that is not always loaded.
    pub const fn unloads(&self) -> bool {
        self.model.is_some() && self.keep_alive.0.is_some()
    }

    /// Returns true if the log is JSON.
    pub fn logs_json(&self) -> bool {
        self.log_format == Some(LogFormat::Json)
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds
        .filter(|time| *time < Duration::from_secs(1 << 32))
        .ok_or_else(|| "must be a number like 30 or 0.5".into())
}

fn some_seconds(text: &str) -> Result<Duration, String> {
    let some = seconds(text)?;
    if some.is_zero() { Err("must be more than 0 seconds".into()) } else { Ok(some) }
}

fn body_memory(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    let least = ByteSize::mib(16);
    if size < least { Err(format!("must be at least {least}, the size of one body")) } else { Ok(size) }
}

fn host_name(text: &str) -> Result<String, String> {
    let name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if text == "*" || !text.is_empty() && text.bytes().all(name) {
        return Ok(text.to_owned());
    }
    Err("must be a name like box.lan, without a port, or *".into())
}
