//! `terrace serve`: one model for many clients, over HTTP.

mod args;
mod clients_notified;
mod downloads;
mod front;
mod models;
mod one;
mod sections;
mod supervised;
mod values;

pub use args::{OF_CLIENTS, ServeArgs};
pub use sections::{Section, Sections};
pub use supervised::{Handed, has_the_parents_words, supervise};
pub use values::LogFormat;

use crate::open_files;
use crate::watch::{Hangups, Watch};
use clients_notified::ClientsNotified;
use downloads::Downloads;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use supervised::{LOST, place_again};
use terrace_cli::advice;
use terrace_cli::error::CliError;
use terrace_cli::hotswap_env;
use terrace_cli::loading::{self, Announce};
use terrace_cli::report::summary::Summary;
use terrace_cli::source;
use terrace_cli::term::{messages, say, signals, watchdog};
use terrace_engine::Engine;
use terrace_engine::options::DraftOptions;
use terrace_ggml::llama::{Sampling, on_loss};
use terrace_platform::process::end_at_once;
use terrace_platform::signals::{Signal, Signals};
use terrace_server::batch::{Clerk, Shelf};
use terrace_server::{App, Limits, Listening, Server, ServerConfig, Tls, router};
use terrace_serving::{Serving, ServingOptions, SharePasses};
use values::KeyFile;

/// Time for clients to receive the rest of their answers after the server has stopped.
const FAREWELL: Duration = Duration::from_secs(2);

/// Time for the engine to end its work.
const REST: Duration = Duration::from_secs(5);

/// Time for it to write conversations to disk, where they are kept there.
const WRITING: Duration = Duration::from_secs(10);

/// Serves until Ctrl-C or SIGTERM.
///
/// # Errors
/// The server cannot listen, or the model cannot be loaded.
pub fn serve(args: &ServeArgs, handed: Option<Handed>, verbose: bool) -> Result<(), CliError> {
    let sampling = args.sampling.settings()?;
    let template = args.template.source()?;
    if args.model.is_some() && args.models_dir.is_some() && handed.is_none() {
        return Err(CliError::Usage {
            message: "both a MODEL and --models-dir".into(),
            hint: "leave MODEL out, or write a section like [models.NAME] for it".into(),
        });
    }
    if args.batch_dir.is_some() && (args.has_several() || args.unloads()) {
        return Err(CliError::Usage {
            message: "--batch-dir is for a server with one model that stays loaded".into(),
            hint: "name one MODEL, without --keep-alive".into(),
        });
    }
    if handed.is_none() && args.has_several() {
        return front::serve_models(args, sampling);
    }
    if handed.is_none() && args.unloads() {
        return front::serve_at_times(args, sampling);
    }
    let behind = handed.as_ref().and_then(|handed| handed.behind.clone());
    let tls = if behind.is_some() { None } else { tls(args)? };
    let drafts = drafts(args)?;
    let hotswap = hotswap_env::hotswap();
    let config = config(args, hotswap, sampling)?;
    source::check(args.model.as_deref())?;
    let (listening, restarts, again) = match handed {
        Some(handed) => (handed.listening, true, handed.again),
        // Listen before the load: clients can wait for it, and an address in use costs no load.
        None => (Listening::start(&args.host, args.port)?, false, false),
    };
    // Of a model among several, the address is its parent's business; of a later process, it is known.
    let says_address = behind.is_none() && !again;
    let address = listening.address();
    let config = ServerConfig { restarts, verbose, ..config };
    let config = match behind {
        None => config,
        // The parent has looked at the client's key and page.
        Some(key) => ServerConfig { keys: vec![key], admin_keys: Vec::new(), origins: Vec::new(), ..config },
    };
    warn_of_openness(address, &config);
    let app = Arc::new(App::new(&config));
    let writing = if args.prompt_cache.cache_disk.is_some() { WRITING } else { Duration::ZERO };
    watchdog::watch(args.grace + REST + writing + FAREWELL)?;
    signals::on_terminate()?;
    let hangups = Hangups::handle(restarts)?;
    if let Some(tls) = &tls {
        read_again_on_hangup(Arc::clone(tls))?;
    }
    let secured = tls.is_some();
    let server = Server::start(listening, router(&app), config.limits, tls, signals::wake)?;
    if says_address {
        say_address(address, secured);
    }
    let json = args.logs_json();
    let announce = Announce::of(verbose, json);
    let mut engine =
        loading::load(args.model.as_deref(), &args.engine, &args.testing, announce, |options| {
            (options.context.sequences, options.context.unified) = (args.parallel, false);
            options.context.agents = true;
            options.chat_template = template;
            if again {
                place_again(&mut options.devices);
            }
            options.prompt_cache = args.prompt_cache.clone();
            options.drafts = drafts;
            options.adapters = args.adapters.all(!args.lora_init_without_apply);
            options.vision = args.vision.clone();
            options.embeddings = Some(args.embeddings);
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
    let (batch_slots, prefill_latency) = (args.batch_slots, args.prefill_latency.0);
    let share_passes = SharePasses::WhereReadsDecide;
    let options = ServingOptions { slots, queue, batch_slots, share_passes, prefill_latency, lockstep: None };
    let serving = Serving::start(engine, options);
    let ready = app.serve(serving);
    let clerk = Clerk::start(&app).map_err(CliError::io("a thread"))?;
    if json {
        let (model, context) = (&ready.name, ready.facts.context);
        tracing::info!(target: "terrace_server::state", model, slots, context, "ready");
    } else {
        let (name, context) = (&ready.name, ready.facts.context);
        if slots == 1 {
            say!("ready: {name}, 1 server slot of {context} tokens");
        } else {
            say!("ready: {name}, {slots} server slots of {context} tokens each");
        }
    }

    let told = Arc::new(ClientsNotified::default());
    {
        let (ready, told) = (Arc::clone(&ready), Arc::clone(&told));
        on_loss(move || {
            ready.lose();
            signals::wake();
            told.wait();
            if restarts {
                messages::flush();
                end_at_once(LOST.into());
            }
        });
    }
    let learned = signals::busy(|| {
        // The server is useless without one of its threads, so it ends.
        signals::wait(|| server.has_ended() || ready.has_failed() || ready.is_lost());
        watchdog::begin();
        app.end_streams();
        // Batches go on with the next server.
        drop(clerk);
        if ready.is_lost() {
            server.end(FAREWELL);
            told.done();
        }
        server.drain(args.grace);
        let mut engine = ready.stop();
        server.end(FAREWELL);
        // The first Ctrl-C asked for this end, so the exit code is not that of an interruption.
        signals::take();
        if let (true, Some(engine)) = (verbose, &engine) {
            say!("{}", Summary::of(engine, None));
        }
        engine.as_mut().map_or(Ok(()), Engine::finish_learned)
    });
    Ok(learned?)
}

/// The source of drafts. Responses of several server slots share passes, which drafts do not; a preset, found with
/// one answer at a time, does not decide that.
fn drafts(args: &ServeArgs) -> Result<DraftOptions, CliError> {
    let presets = &args.engine.presets;
    if args.parallel > 1 && presets.sets("draft") {
        tracing::info!("the preset's drafts are not used: several server slots share passes");
        return Ok(DraftOptions::default());
    }
    args.drafts.options(presets)
}

/// Warns of a server that strangers can use.
fn warn_of_openness(address: SocketAddr, config: &ServerConfig) {
    if !address.ip().is_loopback() && config.keys.is_empty() {
        tracing::warn!("anyone who can reach {address} can use the model; --api-key requires a key");
    }
}

/// Prints the address, at which clients can connect.
fn say_address(address: SocketAddr, secured: bool) {
    let scheme = if secured { "https" } else { "http" };
    // Nobody may be there to read it.
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "listening on {scheme}://{address}").and_then(|()| stdout.flush());
}

/// The certificate, if there is one.
fn tls(args: &ServeArgs) -> Result<Option<Arc<Tls>>, CliError> {
    match (&args.ssl_cert_file, &args.ssl_key_file) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(Arc::new(Tls::read(certificate.clone(), key.clone())?))),
        (certificate, _) => {
            let (given, missing) = match certificate {
                Some(_) => ("--ssl-cert-file", "--ssl-key-file"),
                None => ("--ssl-key-file", "--ssl-cert-file"),
            };
            Err(CliError::Usage {
                message: format!("{given} without {missing}"),
                hint: "TLS needs a certificate and its key".into(),
            })
        }
    }
}

/// Reads the certificate again on each SIGHUP.
fn read_again_on_hangup(tls: Arc<Tls>) -> Result<(), CliError> {
    let mut signals = Signals::new(&[Signal::HangUp]).map_err(CliError::io("SIGHUP"))?;
    let handle = move || {
        for _ in signals.forever() {
            match tls.read_again() {
                Ok(()) => tracing::info!("the certificate was reloaded"),
                Err(error) => tracing::warn!("{error}; the current certificate stays in use"),
            }
        }
    };
    std::thread::Builder::new().name("terrace-tls".into()).spawn(handle).map_err(CliError::io("a thread"))?;
    Ok(())
}

/// The keys of options and of a file.
fn keys(given: &[String], file: Option<&KeyFile>) -> Vec<String> {
    given.iter().chain(file.iter().flat_map(|file| &file.0)).cloned().collect()
}

/// The files and batches of clients.
fn shelf(dir: &Path) -> Result<Arc<Shelf>, CliError> {
    Shelf::open(dir).map(Arc::new).map_err(CliError::io("--batch-dir"))
}

/// The configuration of the server, from the options.
///
/// # Errors
/// This process may have too few files open.
fn config(args: &ServeArgs, hotswap: bool, sampling: Sampling) -> Result<ServerConfig, CliError> {
    let files = open_files::of_server()?;
    Ok(ServerConfig {
        keys: keys(&args.api_key, args.api_key_file.as_ref()),
        admin_keys: keys(&args.admin_key, args.admin_key_file.as_ref()),
        strict: args.strict,
        origins: args.cors_origin.clone(),
        hosts: args.allowed_host.iter().chain([&args.host]).cloned().collect(),
        timeout: args.timeout,
        sampling,
        thinking: args.thinking.clone(),
        verbose: false,
        seed: args.sampling.seed,
        n_max: args.n,
        hotswap,
        restarts: false,
        name: args.alias.clone(),
        learn_dir: args.learn_dir.clone(),
        props: args.props,
        pulls: args.allow_pull.then(|| Arc::new(Downloads) as _),
        deletes: args.allow_delete.then(|| Arc::new(Downloads) as _),
        slot_dir: args.prompt_cache.slot_save_path.clone(),
        batches: args.batch_dir.as_deref().map(shelf).transpose()?,
        learn_name: args.engine.learn.learned.as_ref().and_then(|file| file.file_name()).map(Into::into),
        advice: Some(advice::to_clients),
        log_dropped: Some(messages::dropped),
        limits: Limits {
            connections: args.max_connections as usize,
            idle: args.idle_timeout,
            body: args.body_timeout,
            write: args.write_timeout,
            bodies: usize::try_from(args.body_memory.bytes()).unwrap_or(usize::MAX),
            files,
        },
    })
}
