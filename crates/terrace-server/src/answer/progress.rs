//! Progress of a job's prompt.

use tokio::time::Instant;

/// Progress of a prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Tokens of the prompt.
    pub total: usize,
    /// Those whose keys and values the server slot already held.
    pub reused: usize,
    /// Those that are done, with the reused ones.
    pub processed: usize,
    /// Time since the job got its slot.
    pub ms: f64,
}

/// Follows a prompt: what is told first is what was reused, and last that all is done.
pub struct Prompt {
    last: Progress,
    begun: Instant,
    told: bool,
}

impl Prompt {
    /// Begins with what the slot held.
    pub fn begin(total: usize, reused: usize) -> Self {
        let last = Progress { total, reused, processed: reused, ms: 0.0 };
        Self { last, begun: Instant::now(), told: false }
    }

    /// So many tokens are done.
    pub fn reach(&mut self, processed: usize) {
        let ms = self.begun.elapsed().as_secs_f64() * 1e3;
        self.last = Progress { processed, ms, ..self.last };
        self.told = false;
    }

    /// All tokens are done. Returns whether that is new.
    pub fn end(&mut self) -> bool {
        let is_new = self.last.processed < self.last.total;
        if is_new {
            self.reach(self.last.total);
        }
        is_new
    }

    /// Progress that was not reported yet.
    pub fn untold(&mut self) -> Option<Progress> {
        (!std::mem::replace(&mut self.told, true)).then_some(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_is_told_once() {
        let mut prompt = Prompt::begin(10, 4);
        assert_eq!(prompt.untold(), Some(Progress { total: 10, reused: 4, processed: 4, ms: 0.0 }));
        assert_eq!(prompt.untold(), None);
        prompt.reach(7);
        assert_eq!(prompt.untold().unwrap().processed, 7);
        assert!(prompt.end());
        assert_eq!(prompt.untold().unwrap().processed, 10);
        assert!(!prompt.end() && prompt.untold().is_none());
    }
}
