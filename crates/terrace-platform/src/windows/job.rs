//! Job objects: limits of processes.

use super::call::{check, owned, size};
use super::memory::committed;
use std::io;
use std::os::windows::io::{AsRawHandle, OwnedHandle};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use windows_sys::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_LIMIT,
    JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION, JOB_OBJECT_LIMIT_JOB_MEMORY,
    JOB_OBJECT_LIMIT_PROCESS_MEMORY, JOB_OBJECT_LIMIT_PROCESS_TIME, JOBOBJECT_EXTENDED_LIMIT_INFORMATION,
    JobObjectExtendedLimitInformation, QueryInformationJobObject, SetInformationJobObject,
};
use windows_sys::Win32::System::Threading::GetCurrentProcess;

/// The limits of memory of this process's job, each with what counts for it, in bytes. Of the job's other
/// processes the system does not tell: their memory is not counted.
pub fn limits() -> Vec<(u64, u64)> {
    let mut facts = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
    let (place, room) = ((&raw mut facts).cast(), size::<JOBOBJECT_EXTENDED_LIMIT_INFORMATION>());
    let kind = JobObjectExtendedLimitInformation;
    let none = std::ptr::null_mut();
    // SAFETY: the job of this process, and room of that size.
    if check(unsafe { QueryInformationJobObject(none, kind, place, room, none.cast()) }).is_err() {
        return Vec::new();
    }
    let used = committed();
    let limit = |flag: JOB_OBJECT_LIMIT, limit: usize| {
        (facts.BasicLimitInformation.LimitFlags & flag != 0).then_some((limit as u64, used))
    };
    [
        limit(JOB_OBJECT_LIMIT_PROCESS_MEMORY, facts.ProcessMemoryLimit),
        limit(JOB_OBJECT_LIMIT_JOB_MEMORY, facts.JobMemoryLimit),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The job with the limits that this process has set for itself, and these.
static OWN: Mutex<Option<(OwnedHandle, JOBOBJECT_EXTENDED_LIMIT_INFORMATION)>> = Mutex::new(None);

/// Changes the limits of this process.
fn change(set: impl FnOnce(&mut JOBOBJECT_EXTENDED_LIMIT_INFORMATION)) -> io::Result<()> {
    let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    if own.is_none() {
        // SAFETY: a new job without a name, for this process, which may be in others already.
        let job = unsafe {
            let job = owned(CreateJobObjectW(std::ptr::null(), std::ptr::null()))?;
            check(AssignProcessToJobObject(job.as_raw_handle(), GetCurrentProcess()))?;
            job
        };
        let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
        // Without a report of errors, which would keep a process that has crashed.
        limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION;
        *own = Some((job, limits));
    }
    let (job, limits) = own.as_mut().expect("made above");
    set(limits);
    let (place, room) = ((&raw const *limits).cast(), size::<JOBOBJECT_EXTENDED_LIMIT_INFORMATION>());
    // SAFETY: a job, and a structure of that kind and size.
    check(unsafe {
        SetInformationJobObject(job.as_raw_handle(), JobObjectExtendedLimitInformation, place, room)
    })
}

/// Limits the memory that this process may have committed.
pub fn limit_memory(most: u64) -> io::Result<()> {
    change(|limits| {
        limits.BasicLimitInformation.LimitFlags |= JOB_OBJECT_LIMIT_PROCESS_MEMORY;
        limits.ProcessMemoryLimit = usize::try_from(most).unwrap_or(usize::MAX);
    })
}

/// Limits the processor time that this process may have used.
pub fn limit_time(most: Duration) -> io::Result<()> {
    change(|limits| {
        limits.BasicLimitInformation.LimitFlags |= JOB_OBJECT_LIMIT_PROCESS_TIME;
        limits.BasicLimitInformation.PerProcessUserTimeLimit =
            i64::try_from(most.as_nanos() / 100).unwrap_or(i64::MAX);
    })
}
