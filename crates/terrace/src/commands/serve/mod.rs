//! `terrace serve`: one model for many clients, over HTTP.

mod args;
mod supervised;
mod told;

pub use args::ServeArgs;
pub use supervised::{Handed, supervise};

use crate::advice;
use crate::error::CliError;
use crate::hotswap_env;
use crate::loading::{self, Announce};
use crate::report::summary::Summary;
use crate::term::signals;
use crate::watch::{Hangups, Watch};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use supervised::{LOST, place_again};
use terrace_engine::serving::{Serving, ServingOptions};
use terrace_ggml::llama::{Sampling, on_loss};
use terrace_server::{App, Limits, Listening, Server, ServerConfig, router};
use told::Told;

/// Time for clients to receive the rest of their answers after the server has stopped.
const FAREWELL: Duration = Duration::from_secs(2);

/// Serves until Ctrl-C or SIGTERM.
///
/// # Errors
/// The server cannot listen, or the model cannot be loaded.
pub fn serve(args: &ServeArgs, handed: Option<Handed>, verbose: bool) -> Result<(), CliError> {
    let sampling = args.sampling.settings()?;
    let template = args.template.source()?;
    let (listening, restarts, again) = match handed {
        Some(handed) => (handed.listening, true, handed.again),
        None => {
            // Listen before the load: clients can wait for it, and an address in use costs no load.
            let listening = Listening::start(&args.host, args.port)?;
            say_address(listening.address());
            (listening, false, false)
        }
    };
    let address = listening.address();
    if !address.ip().is_loopback() && args.api_key.is_empty() {
        tracing::warn!("anyone who can reach {address} can use the model; --api-key requires a key");
    }
    let hotswap = hotswap_env::hotswap();
    let config = ServerConfig { restarts, ..config(args, hotswap, sampling) };
    let app = Arc::new(App::new(&config));
    signals::on_terminate()?;
    let hangups = Hangups::handle()?;
    let server = Server::start(listening, router(&app), config.limits, signals::wake)?;
    let announce = Announce::of(verbose, false);
    let mut engine =
        loading::load(args.model.as_deref(), &args.engine, &args.testing, announce, |options| {
            (options.context.sequences, options.context.unified) = (args.parallel, false);
            options.chat_template = template;
            if again {
                place_again(&mut options.devices);
            }
            options.prompt_cache = args.prompt_cache.options();
            options.embeddings = args.embeddings.options();
            options.reload.allowed = args.watch || hotswap;
            options.reload.contexts = args.on_reload;
        })?;
    args.sampling.check(engine.vocabulary())?;
    // From now on Ctrl-C ends the server, not the engine's current work.
    signals::forget_engine();
    let _watch = if args.watch {
        Some(Watch::start(&mut engine, hangups)?)
    } else {
        hangups.reload(&mut engine)?;
        None
    };
    let (slots, queue) = (args.parallel, args.queue as usize);
    let options = ServingOptions { slots, queue, batch_slots: args.batch_slots, prefill_latency: None };
    let serving = Serving::start(engine, options);
    let ready = app.serve(serving);
    eprintln!("ready: {}, {slots} server slots of {} tokens each", ready.name, ready.facts.context);

    let told = Arc::new(Told::default());
    {
        let (ready, told) = (Arc::clone(&ready), Arc::clone(&told));
        on_loss(move || {
            ready.lose();
            signals::wake();
            told.wait();
            if restarts {
                signal_hook::low_level::exit(LOST.into());
            }
        });
    }
    signals::busy(|| {
        // The server is useless without one of its threads, so it ends.
        signals::wait(|| server.has_ended() || ready.has_failed() || ready.is_lost());
        app.end_streams();
        if ready.is_lost() {
            server.end(FAREWELL);
            told.done();
        }
        server.drain(args.grace);
        let engine = ready.stop();
        server.end(FAREWELL);
        // The first Ctrl-C asked for this end, so the exit code is not that of an interruption.
        signals::take();
        if let (true, Some(engine)) = (verbose, &engine) {
            eprint!("{}", Summary::of(engine, None));
        }
    });
    Ok(())
}

/// Prints the address, at which clients can connect.
fn say_address(address: SocketAddr) {
    // Nobody may be there to read it.
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "listening on http://{address}").and_then(|()| stdout.flush());
}

/// The configuration of the server, from the options.
fn config(args: &ServeArgs, hotswap: bool, sampling: Sampling) -> ServerConfig {
    ServerConfig {
        keys: args.api_key.clone(),
        origins: args.cors_origin.clone(),
        hosts: args.allowed_host.iter().chain([&args.host]).cloned().collect(),
        timeout: args.timeout,
        sampling,
        seed: args.sampling.seed,
        n_max: args.n,
        hotswap,
        restarts: false,
        name: args.alias.clone(),
        learn_dir: args.learn_dir.clone(),
        slot_dir: args.prompt_cache.slot_save_path.clone(),
        learn_name: args.engine.learn.learned.as_ref().and_then(|file| file.file_name()).map(Into::into),
        advice: Some(advice::to_clients),
        limits: Limits {
            connections: args.max_connections as usize,
            idle: args.idle_timeout,
            body: args.body_timeout,
            write: args.write_timeout,
            bodies: usize::try_from(args.body_memory.bytes()).unwrap_or(usize::MAX),
        },
    }
}
