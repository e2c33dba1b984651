//! Handles the exception that the system raises when a page of a mapped file cannot be read: its disk failed, or
//! the share is gone. One line and an exit code instead of a crash. A mapped file cannot be truncated here.

use super::call::check;
use super::process::end_at_once;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Once, OnceLock};
use windows_sys::Win32::Foundation::EXCEPTION_IN_PAGE_ERROR;
use windows_sys::Win32::System::Diagnostics::Debug::{
    AddVectoredExceptionHandler, EXCEPTION_CONTINUE_SEARCH, EXCEPTION_POINTERS,
};
use windows_sys::Win32::System::Threading::{INFINITE, Sleep};

/// A watched range. Never freed, since an exception may come at any time; a range that is no longer watched has
/// length 0.
struct Watched {
    base: usize,
    len: AtomicUsize,
    path: String,
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

/// Watches `[base, base + len)`, a mapping of `path`: from now on, an access that fails ends the process with one
/// line that names the file.
pub fn watch(base: usize, len: usize, path: &Path) {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        // SAFETY: the handler looks at exceptions of one kind, and passes on all others.
        unsafe { AddVectoredExceptionHandler(1, Some(on_exception)) };
    });
    let path = path.display().to_string();
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

/// Room for a long path and the text around it.
const LINE: usize = 4096 + 256;

unsafe extern "system" fn on_exception(pointers: *mut EXCEPTION_POINTERS) -> i32 {
    // SAFETY: the system passes the exception's record.
    let record = unsafe { &*(*pointers).ExceptionRecord };
    if record.ExceptionCode != EXCEPTION_IN_PAGE_ERROR {
        return EXCEPTION_CONTINUE_SEARCH;
    }
    // Of the kind of access, its address, and the reason.
    let address = record.ExceptionInformation[1];
    let hit = |w: &&Watched| address.checked_sub(w.base).is_some_and(|at| at < w.len.load(Ordering::Relaxed));
    let Some(entry) = watched().find(hit) else { return EXCEPTION_CONTINUE_SEARCH };
    static SAID: AtomicBool = AtomicBool::new(false);
    if SAID.swap(true, Ordering::Relaxed) {
        // All threads read the same weights. The first one prints the line and ends the process.
        loop {
            // SAFETY: only waits.
            unsafe { Sleep(INFINITE) };
        }
    }
    // The thread may hold any lock: of the allocator, of Rust's stderr.
    let mut line = [0u8; LINE];
    let mut rest = &mut line[..];
    let at = address - entry.base;
    let _ = writeln!(
        rest,
        "error: {}: cannot read the mapped file at offset {at}: its disk failed, or it is gone",
        entry.path
    );
    if let Some(hint) = HINT.get() {
        let _ = writeln!(rest, "hint: {hint}");
    }
    let len = LINE - rest.len();
    write(&line[..len]);
    end_at_once(1)
}

/// Writes to standard error without a lock.
fn write(line: &[u8]) {
    use windows_sys::Win32::Storage::FileSystem::WriteFile;
    use windows_sys::Win32::System::Console::{GetStdHandle, STD_ERROR_HANDLE};
    let (len, mut written) = (line.len() as u32, 0);
    // SAFETY: bytes of that length; without a standard error the call fails.
    let _ = check(unsafe {
        WriteFile(GetStdHandle(STD_ERROR_HANDLE), line.as_ptr(), len, &raw mut written, std::ptr::null_mut())
    });
}
