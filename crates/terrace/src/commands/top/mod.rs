//! `terrace top`: the experts of a running server, live in a terminal.

mod args;
mod feed;
mod grid;
mod seen;
#[cfg(test)]
mod tests;
mod view;

pub use args::TopArgs;

use feed::{Feed, Update};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal;
use seen::Seen;
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use terrace_cli::error::CliError;
use terrace_cli::remote::{Remote, ServerArgs};
use terrace_cli::term::{print, signals};
use view::View;

/// Time between two looks for keys and news.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The size of a frame where no terminal says otherwise.
const SIZE: (u16, u16) = (80, 24);

/// Shows a server's experts until a key ends it.
///
/// # Errors
/// The address is none, there is no terminal, or with `--once` the server does not answer.
pub fn top(args: &TopArgs) -> Result<(), CliError> {
    let server = args.url.clone().unwrap_or_else(|| args.of.server.clone());
    let remote = Remote::new(&ServerArgs { server, ..args.of.clone() })?;
    if args.once {
        return once(&remote);
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(CliError::Usage {
            message: "this is no terminal".into(),
            hint: "--once prints one frame as text".into(),
        });
    }
    let colours = terrace_cli::environment::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut terminal = ratatui::try_init().map_err(CliError::io("the terminal"))?;
    let ended = live(&mut terminal, &remote, colours);
    ratatui::restore();
    ended
}

/// Prints one frame, of what the server says within two events: the second one shows rates.
fn once(remote: &Remote) -> Result<(), CliError> {
    let mut seen = Seen::default();
    let (slots, name) = feed::slots(remote)?;
    seen.slots = slots;
    seen.model = name;
    let begin = Instant::now();
    let mut events = remote.events(feed::STREAM)?;
    for _ in 0..2 {
        let Some(event) = events.next() else { break };
        seen.take(&event, begin.elapsed().as_secs_f64());
    }
    let (width, height) = match std::io::stdout().is_terminal() {
        true => terminal::size().unwrap_or(SIZE),
        false => SIZE,
    };
    let view = View { url: remote.url().to_owned(), ..View::default() };
    print(frame(&seen, &view, width, height).trim_end())
}

/// A frame as text.
fn frame(seen: &Seen, view: &View, width: u16, height: u16) -> String {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
    let Ok(_) = terminal.draw(|frame| view.draw(frame, seen));
    let cells = terminal.backend().buffer().content();
    let line = |row: &[ratatui::buffer::Cell]| {
        let text: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        text.trim_end().to_owned() + "\n"
    };
    cells.chunks(usize::from(width.max(1))).map(line).collect()
}

fn live(terminal: &mut ratatui::DefaultTerminal, remote: &Remote, colours: bool) -> Result<(), CliError> {
    let feed = Feed::start(remote);
    let mut seen = Seen::default();
    let mut view = View { url: remote.url().to_owned(), colours, keys: true, ..View::default() };
    let begin = Instant::now();
    let broken = CliError::io("the terminal");
    let mut draw = true;
    let result = loop {
        for update in feed.updates() {
            draw = true;
            match update {
                Update::Event(event) => {
                    view.lost = None;
                    seen.take(&event, begin.elapsed().as_secs_f64());
                }
                Update::Slots(slots, model) => (seen.slots, seen.model) = (slots, model),
                Update::Lost(reason) => {
                    seen.interrupt();
                    view.lost = Some(reason);
                }
                Update::Said(text) => view.said = text,
            }
        }
        if std::mem::take(&mut draw)
            && let Err(error) = terminal.draw(|frame| view.draw(frame, &seen))
        {
            break Err(error);
        }
        if signals::interrupted() {
            break Ok(());
        }
        match event::poll(POLL_INTERVAL) {
            Ok(false) => continue,
            Ok(true) => {}
            Err(error) => break Err(error),
        }
        let key = match event::read() {
            Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => key,
            Ok(_) => {
                // Another size, perhaps.
                draw = true;
                continue;
            }
            Err(error) => break Err(error),
        };
        draw = true;
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => break Ok(()),
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => break Ok(()),
            // Before the first event there is no mode.
            KeyCode::Char('m' | 'r') if seen.mode.is_empty() => {}
            KeyCode::Char('m') => feed.set_mode(remote, seen.next_mode()),
            KeyCode::Char('r') => feed.set_mode(remote, &seen.mode),
            KeyCode::Down | KeyCode::Char('j') => view.scroll(1, &seen),
            KeyCode::Up | KeyCode::Char('k') => view.scroll(-1, &seen),
            KeyCode::PageDown => view.scroll(10, &seen),
            KeyCode::PageUp => view.scroll(-10, &seen),
            KeyCode::Home => view.scroll(isize::MIN, &seen),
            KeyCode::End => view.scroll(isize::MAX, &seen),
            _ => {}
        }
    };
    result.map_err(broken)
}
