//! Memory pressure, as the system reports it through its dispatch sources and as a level.
//!
//! See dispatch/source.h (`DISPATCH_SOURCE_TYPE_MEMORYPRESSURE`).

use super::control_group::Group;
use super::sysctl;
use super::wait::Waker;
use rustix::event::PollFlags;
use std::ffi::{c_ulong, c_void};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;

/// The level at which the system asks processes to give memory back: `kVMPressureWarning`.
const WARNING: u64 = 2;
/// Changes of the level that are reported: to a warning, and to a critical one.
const REPORTED: c_ulong = 2 | 4;

/// Flags by which the pipe of reports is polled.
pub(super) const NEWS: PollFlags = PollFlags::IN;

#[repr(C)]
struct SourceType {
    opaque: [u8; 0],
}

unsafe extern "C" {
    #[link_name = "_dispatch_source_type_memorypressure"]
    static MEMORY_PRESSURE: SourceType;
    fn dispatch_source_create(
        ty: *const SourceType,
        handle: usize,
        mask: c_ulong,
        queue: *mut c_void,
    ) -> *mut c_void;
    fn dispatch_set_context(object: *mut c_void, context: *mut c_void);
    fn dispatch_source_set_event_handler_f(source: *mut c_void, handler: extern "C" fn(*mut c_void));
    fn dispatch_source_set_cancel_handler_f(source: *mut c_void, handler: extern "C" fn(*mut c_void));
    fn dispatch_source_cancel(source: *mut c_void);
    fn dispatch_resume(object: *mut c_void);
    fn dispatch_release(object: *mut c_void);
}

/// Reports of the system.
#[derive(Debug)]
pub struct Psi {
    /// A byte for each report since the last reading.
    reports: PipeReader,
    source: *mut c_void,
}

// SAFETY: objects of libdispatch may be used on any thread.
unsafe impl Send for Psi {}

impl Psi {
    /// Asks for those of the machine; `None` if the system refuses.
    pub fn of_machine() -> Option<Self> {
        let (reports, to) = io::pipe().ok()?;
        for end in [reports.as_fd(), to.as_fd()] {
            rustix::io::ioctl_fionbio(end, true).ok()?;
        }
        // SAFETY: the system's own type of source, on a queue of its choice; null is an answer.
        let source =
            unsafe { dispatch_source_create(&raw const MEMORY_PRESSURE, 0, REPORTED, std::ptr::null_mut()) };
        if source.is_null() {
            return None;
        }
        // SAFETY: a new source, which does nothing before it is resumed. The handlers' context is given to it, and the
        // last of them takes it back.
        unsafe {
            dispatch_set_context(source, Box::into_raw(Box::new(to)).cast());
            dispatch_source_set_event_handler_f(source, report);
            dispatch_source_set_cancel_handler_f(source, close);
            dispatch_resume(source);
        }
        Some(Self { reports, source })
    }

    /// None.
    pub fn of_group(group: &Group) -> Option<Self> {
        match group.0 {}
    }

    /// Returns whether the system has asked for memory since the last call, or still does.
    pub fn is_pressed(&mut self) -> bool {
        let reported = matches!(self.reports.read(&mut [0; 64]), Ok(1..));
        reported
            || sysctl::number(c"kern.memorystatus_vm_pressure_level").is_some_and(|level| level >= WARNING)
    }

    /// Returns what reports when the system asks for memory.
    pub fn waker(&self) -> Option<Waker<'_>> {
        Some(Waker(self.reports.as_fd()))
    }

    /// Does nothing: what the waker has reported stays to be read.
    pub fn woke(&mut self) {}
}

impl Drop for Psi {
    fn drop(&mut self) {
        // SAFETY: the source that was made; the last handler still runs, and frees its context.
        unsafe {
            dispatch_source_cancel(self.source);
            dispatch_release(self.source);
        }
    }
}

/// Called with the writing end of the pipe at each report.
extern "C" fn report(context: *mut c_void) {
    // SAFETY: what was given to the source, until `close` is called; one handler runs at a time.
    let mut to = unsafe { &*context.cast::<PipeWriter>() };
    // A full pipe has reports enough.
    let _ = to.write(&[1]);
}

/// Called once, after the last report.
extern "C" fn close(context: *mut c_void) {
    // SAFETY: what was given to the source, for the last time.
    drop(unsafe { Box::from_raw(context.cast::<PipeWriter>()) });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_is_asked() {
        let mut source = Psi::of_machine().unwrap();
        assert!(source.waker().is_some());
        source.is_pressed();
    }
}
