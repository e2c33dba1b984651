//! What the system, a console or another process asks of this one.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;
use windows_sys::Win32::System::Console::{
    CTRL_BREAK_EVENT, CTRL_C_EVENT, CTRL_CLOSE_EVENT, CTRL_LOGOFF_EVENT, CTRL_SHUTDOWN_EVENT,
    SetConsoleCtrlHandler,
};
use windows_sys::core::BOOL;

/// Something that is asked or told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C: end the running work.
    Interrupt,
    /// Ctrl-Break, or the console is closed, or the user leaves: end the program.
    Terminate,
    /// The terminal has closed, or somebody asks to look at files again. It never comes here.
    HangUp,
    /// A child may have ended. The system does not tell, so it comes now and then.
    ChildEnded,
}

/// Time after which a child is asked whether it has ended.
const GLANCE: Duration = Duration::from_millis(100);

/// Time that the system gives a program whose console is closed.
const FAREWELL: Duration = Duration::from_secs(10);

/// Who is told of which signal.
static TOLD: Mutex<Vec<(Signal, Sender<Signal>)>> = Mutex::new(Vec::new());

/// Called on a thread of its own.
unsafe extern "system" fn on_event(event: u32) -> BOOL {
    let signal = match event {
        CTRL_C_EVENT => Signal::Interrupt,
        CTRL_BREAK_EVENT | CTRL_CLOSE_EVENT | CTRL_LOGOFF_EVENT | CTRL_SHUTDOWN_EVENT => Signal::Terminate,
        _ => return 0,
    };
    let told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    let mut handled = false;
    for (_, to) in told.iter().filter(|(of, _)| *of == signal) {
        handled |= to.send(signal).is_ok();
    }
    drop(told);
    if handled && !matches!(event, CTRL_C_EVENT | CTRL_BREAK_EVENT) {
        // The process ends when this returns.
        std::thread::sleep(FAREWELL);
    }
    handled.into()
}

/// Signals that this process handles from now on, one after another.
pub struct Signals {
    come: Receiver<Signal>,
    /// True if it is asked for children now and then.
    children: bool,
    /// Keeps the channel open.
    _to: Sender<Signal>,
}

impl Signals {
    /// Handles these signals from now on: without an effect of their own, until [`forever`](Self::forever) returns
    /// them.
    ///
    /// # Errors
    /// The system's.
    pub fn new(signals: &[Signal]) -> io::Result<Self> {
        static INSTALL: Once = Once::new();
        let mut installed = Ok(());
        INSTALL.call_once(|| {
            // SAFETY: a function that is called on a thread of its own.
            installed = super::call::check(unsafe { SetConsoleCtrlHandler(Some(on_event), 1) });
        });
        installed?;
        let (to, come) = channel();
        let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
        told.extend(signals.iter().map(|&signal| (signal, to.clone())));
        Ok(Self { come, children: signals.contains(&Signal::ChildEnded), _to: to })
    }

    /// Waits for signals without end.
    pub fn forever(&mut self) -> impl Iterator<Item = Signal> {
        std::iter::from_fn(|| {
            if !self.children {
                return self.come.recv().ok();
            }
            match self.come.recv_timeout(GLANCE) {
                Ok(signal) => Some(signal),
                Err(RecvTimeoutError::Timeout) => Some(Signal::ChildEnded),
                Err(RecvTimeoutError::Disconnected) => None,
            }
        })
    }
}

/// Sets a flag on each [`Signal::HangUp`], which never comes here.
///
/// # Errors
/// None.
pub fn set_on_hangup(_: Arc<AtomicBool>) -> io::Result<()> {
    Ok(())
}

/// Does nothing: there is no limit on the size of files that would end a process.
///
/// # Errors
/// None.
pub fn survive_large_files() -> io::Result<()> {
    Ok(())
}
