//! A server with several models, or one that is not always loaded: this process answers clients, and its
//! children have the models.

use super::models::Files;
use super::one::One;
use super::{
    FAREWELL, REST, ServeArgs, WRITING, config, read_again_on_hangup, say_address, tls, warn_of_openness,
};
use crate::watch::Hangups;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};
use terrace_cli::error::CliError;
use terrace_cli::term::say;
use terrace_cli::term::{signals, watchdog};
use terrace_ggml::llama::Sampling;
use terrace_host::available_memory;
use terrace_model::ByteSize;
use terrace_models::{Models, Pool, models_router};
use terrace_plan::{Budget, machine::auto_reserve};
use terrace_server::{App, Listening, Server};

/// Interval at which the end of the children is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Serves several models until Ctrl-C or SIGTERM.
///
/// # Errors
/// The server cannot listen, or there are no models.
pub fn serve_models(args: &ServeArgs, sampling: Sampling) -> Result<(), CliError> {
    let memory = match args.models_memory {
        Budget::Bytes(bytes) => bytes,
        Budget::Auto => {
            let available = available_memory();
            available.saturating_sub(auto_reserve(available))
        }
    };
    let files = Files::new(args, memory);
    if files.names().is_empty() {
        return Err(CliError::Usage {
            message: "there are no models to serve".into(),
            hint: "put .gguf files into --models-dir, or write sections like [models.NAME] with `model = \"FILE\"`"
                .into(),
        });
    }
    serve(args, sampling, Arc::new(files), memory)
}

/// Serves one model until Ctrl-C or SIGTERM, which is loaded while there are requests for it.
///
/// # Errors
/// The server cannot listen, or there is no such model.
pub fn serve_at_times(args: &ServeArgs, sampling: Sampling) -> Result<(), CliError> {
    let one = One::new(args)?;
    let size = one.size();
    serve(args, sampling, Arc::new(one), size)
}

fn serve(
    args: &ServeArgs,
    sampling: Sampling,
    models: Arc<dyn Models>,
    memory: ByteSize,
) -> Result<(), CliError> {
    let tls = tls(args)?;
    let (names, several) = (models.names(), !models.has_any_name());
    let config = config(args, false, sampling)?;
    let listening = Listening::start(&args.host, args.port)?;
    let address = listening.address();
    warn_of_openness(address, &config);
    let app = Arc::new(App::new(&config));
    let pool = Pool::new(models, memory, args.keep_alive.0);
    // The children's own time, and then this process's.
    watchdog::watch(args.grace + REST + WRITING + 4 * FAREWELL)?;
    signals::on_terminate()?;
    let _hangups = Hangups::handle(false)?;
    if let Some(tls) = &tls {
        read_again_on_hangup(Arc::clone(tls))?;
    }
    let secured = tls.is_some();
    let server = Server::start(listening, models_router(&app, &pool), config.limits, tls, signals::wake)?;
    say_address(address, secured);
    say_ready(args, &names, several.then_some(memory));
    signals::busy(|| {
        signals::wait(|| server.has_ended());
        watchdog::begin();
        // The children finish their answers, for as long as they may. They end with the server's thread.
        pool.stop();
        let begin = Instant::now();
        while !pool.is_empty() && !server.has_ended() && begin.elapsed() < args.grace + 2 * FAREWELL {
            sleep(POLL_INTERVAL);
        }
        server.drain(FAREWELL);
        server.end(FAREWELL);
        // The first Ctrl-C asked for this end, so the exit code is not that of an interruption.
        signals::take();
    });
    Ok(())
}

fn say_ready(args: &ServeArgs, names: &[String], memory: Option<ByteSize>) {
    if args.logs_json() {
        let (models, memory) = (names.len(), memory.map(ByteSize::bytes));
        tracing::info!(target: "terrace_server::state", models, memory, "ready");
        return;
    }
    match memory {
        Some(memory) => say!("ready: {} models with {memory} of RAM: {}", names.len(), names.join(", ")),
        None => say!("ready: {}, loaded on request", names.join(", ")),
    }
}
