//! A server with several models: this process answers clients, and its children have the models.

use super::models::Files;
use super::{FAREWELL, ServeArgs, config, read_again_on_hangup, say_address, tls, warn_of_openness};
use crate::error::CliError;
use crate::term::signals;
use crate::watch::Hangups;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};
use terrace_ggml::llama::Sampling;
use terrace_host::available_memory;
use terrace_model::ByteSize;
use terrace_plan::{Budget, machine::auto_reserve};
use terrace_server::{App, Listening, Models, Pool, Server, models_router};

/// How often the end of the children is looked for.
const LOOK: Duration = Duration::from_millis(20);

/// Serves until Ctrl-C or SIGTERM.
///
/// # Errors
/// The server cannot listen, or there are no models.
pub fn serve_models(args: &ServeArgs, sampling: Sampling) -> Result<(), CliError> {
    let tls = tls(args)?;
    let memory = match args.models_memory {
        Budget::Bytes(bytes) => bytes,
        Budget::Auto => {
            let available = available_memory();
            available.saturating_sub(auto_reserve(available))
        }
    };
    let files = Files::new(args, memory);
    let names = files.names();
    if names.is_empty() {
        return Err(CliError::Usage {
            message: "there are no models to serve".into(),
            hint: "put .gguf files into --models-dir, or write sections like [models.NAME] with `model = \"FILE\"`"
                .into(),
        });
    }
    let listening = Listening::start(&args.host, args.port)?;
    say_address(listening.address(), tls.is_some());
    let config = config(args, false, sampling);
    warn_of_openness(listening.address(), &config);
    let app = Arc::new(App::new(&config));
    let pool = Pool::new(Arc::new(files), memory, args.keep_alive.0);
    signals::on_terminate()?;
    let _hangups = Hangups::handle()?;
    if let Some(tls) = &tls {
        read_again_on_hangup(Arc::clone(tls))?;
    }
    let server = Server::start(listening, models_router(&app, &pool), config.limits, tls, signals::wake)?;
    say_ready(args, &names, memory);
    signals::busy(|| {
        signals::wait(|| server.has_ended());
        // The children finish their answers, for as long as they may. They end with the server's thread.
        pool.stop();
        let begin = Instant::now();
        while !pool.is_empty() && !server.has_ended() && begin.elapsed() < args.grace + 2 * FAREWELL {
            sleep(LOOK);
        }
        server.drain(FAREWELL);
        server.end(FAREWELL);
        // The first Ctrl-C asked for this end, so the exit code is not that of an interruption.
        signals::take();
    });
    Ok(())
}

fn say_ready(args: &ServeArgs, names: &[String], memory: ByteSize) {
    if args.logs_json() {
        let (models, memory) = (names.len(), memory.bytes());
        tracing::info!(target: "terrace_server::state", models, memory, "ready");
    } else {
        eprintln!("ready: {} models with {memory} of RAM: {}", names.len(), names.join(", "));
    }
}
