//! Waiting for several things at once, one of which is being told to stop.

use super::pressure::NEWS;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Something that reports when there is news.
#[derive(Clone, Copy, Debug)]
pub struct Waker<'a>(pub(super) BorrowedFd<'a>);

/// Ends another thread's wait, for good.
#[derive(Debug)]
pub struct Stop {
    told: PipeReader,
    /// Closed when it is told: the pipe has an end then.
    tell: Mutex<Option<PipeWriter>>,
}

/// Why a wait has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Woken {
    /// True once it was told to stop.
    pub stopped: bool,
    /// Which of the wakers have reported, by their order; empty if the time has passed.
    pub by: Vec<usize>,
}

impl Stop {
    /// Makes one.
    ///
    /// # Errors
    /// The system's.
    pub fn new() -> io::Result<Self> {
        let (told, tell) = io::pipe()?;
        Ok(Self { told, tell: Mutex::new(Some(tell)) })
    }

    /// Ends the wait, and all later ones.
    pub fn stop(&self) {
        drop(self.tell.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Waits until a waker reports, or this was told to stop, or for `time`.
    ///
    /// # Errors
    /// The system's, at once.
    pub fn wait(&self, wakers: &[Waker<'_>], time: Duration) -> io::Result<Woken> {
        let mut fds = vec![PollFd::from_borrowed_fd(self.told.as_fd(), PollFlags::IN)];
        fds.extend(wakers.iter().map(|waker| PollFd::from_borrowed_fd(waker.0, NEWS)));
        let timeout = Timespec::try_from(time).map_err(io::Error::other)?;
        poll(&mut fds, Some(&timeout))?;
        let reported = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let by = fds[1..].iter().enumerate().filter(|(_, fd)| reported(fd)).map(|(index, _)| index);
        Ok(Woken { stopped: reported(&fds[0]), by: by.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_its_time_or_when_it_is_told_to() {
        let stop = Stop::new().unwrap();
        assert_eq!(stop.wait(&[], Duration::ZERO).unwrap(), Woken::default());
        std::thread::scope(|threads| {
            let waiting = threads.spawn(|| stop.wait(&[], Duration::from_secs(600)).unwrap());
            stop.stop();
            assert!(waiting.join().unwrap().stopped);
        });
        assert!(stop.wait(&[], Duration::from_secs(600)).unwrap().stopped, "for good");
    }
}
