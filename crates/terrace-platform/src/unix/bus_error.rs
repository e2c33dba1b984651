//! Handles SIGBUS, which the kernel raises when a mapped file was truncated or its disk failed: one
//! line and an exit code instead of a crash.

use std::ffi::{CString, c_int, c_void};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};

/// A watched range. Never freed, since a signal may arrive at any time; a range that is no longer
/// watched has length 0.
struct Watched {
    base: usize,
    len: AtomicUsize,
    path: CString,
    next: *const Watched,
}

static WATCHED: AtomicPtr<Watched> = AtomicPtr::new(std::ptr::null_mut());

/// The text of the hint line after the error.
static HINT: OnceLock<&str> = OnceLock::new();

/// Sets the hint for the user. Only the first call in a process has an effect.
pub fn advise(hint: &'static str) {
    HINT.get_or_init(|| hint);
}

fn watched() -> impl Iterator<Item = &'static Watched> {
    let mut next = WATCHED.load(Ordering::Acquire).cast_const();
    std::iter::from_fn(move || {
        // SAFETY: null or an entry that `watch` leaked, complete before it was published.
        let entry = unsafe { next.as_ref() }?;
        next = entry.next;
        Some(entry)
    })
}

/// Watches `[base, base + len)`, a mapping of `path`: from now on, an access that fails ends the
/// process with one line that names the file.
pub fn watch(base: usize, len: usize, path: &Path) {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        // SAFETY: the handler calls only what may be called in one; all-zero is an empty mask and
        // no flags.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_bus_error as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
        }
    });
    let path = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
    let entry = Box::leak(Box::new(Watched { base, len: len.into(), path, next: std::ptr::null() }));
    let mut head = WATCHED.load(Ordering::Acquire);
    loop {
        entry.next = head;
        match WATCHED.compare_exchange(head, entry, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

/// Stops watching the mapping at `base`.
pub fn forget(base: usize) {
    for entry in watched().filter(|entry| entry.base == base) {
        entry.len.store(0, Ordering::Relaxed);
    }
}

/// Room for the longest path and the text around it.
const LINE: usize = 4096 + 256;

/// Milliseconds that the reader of stderr has to make room for the line.
const READER: c_int = 1000;

unsafe extern "C" fn on_bus_error(_signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel passes the signal's information, which has an address for SIGBUS.
    let address = unsafe { (*info).si_addr() } as usize;
    let hit = |w: &&Watched| address.checked_sub(w.base).is_some_and(|at| at < w.len.load(Ordering::Relaxed));
    let Some(entry) = watched().find(hit) else {
        // Elsewhere the default action applies: the access is repeated when this returns. SAFETY:
        // may be called in a signal handler.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
        return;
    };
    static SAID: AtomicBool = AtomicBool::new(false);
    if SAID.swap(true, Ordering::Relaxed) {
        // All threads read the same weights. The first thread prints the line and ends the process;
        // this one cannot continue.
        loop {
            // SAFETY: may be called in a signal handler.
            unsafe { libc::pause() };
        }
    }
    // Allocating, locking and Rust's stderr are not allowed in signal handlers.
    let mut line = [0u8; LINE];
    let mut rest = &mut line[..];
    let _ = rest.write_all(b"error: ");
    let _ = rest.write_all(entry.path.as_bytes());
    let _ = writeln!(
        rest,
        ": cannot read the mapped file at offset {}: it was truncated, or its disk failed",
        address - entry.base
    );
    if let Some(hint) = HINT.get() {
        let _ = writeln!(rest, "hint: {hint}");
    }
    let len = LINE - rest.len();
    let mut stderr = libc::pollfd { fd: 2, events: libc::POLLOUT, revents: 0 };
    // SAFETY: all may be called in a signal handler; the bytes are initialised. A pipe that is ready takes
    // a page, so that a reader which has stopped cannot keep the process.
    unsafe {
        if libc::poll(&raw mut stderr, 1, READER) != 1 {
            libc::_exit(1)
        }
        libc::write(2, line.as_ptr().cast(), len);
        libc::_exit(1)
    }
}
