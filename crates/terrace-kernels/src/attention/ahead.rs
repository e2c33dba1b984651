//! Requests the next data from memory while something else is computed.

const LINE: usize = 64;

/// Rows to be requested, line by line.
///
/// Requests are spread over what is computed meanwhile: more at a time than the processor keeps track of would make
/// it wait. They go to the second-level cache, as neighbouring rows' heads do not find room in the first.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    at: *const u8,
    /// Bytes of a row, and from one to the next.
    bytes: usize,
    stride: usize,
    /// Bytes of this row that have been requested.
    done: usize,
    /// Rows left.
    rows: usize,
}

impl Ahead {
    /// So many rows.
    pub(super) const fn new(at: *const u8, stride: usize, bytes: usize, rows: usize) -> Self {
        Self { at, bytes, stride, done: 0, rows }
    }

    /// Lines that have not been requested.
    const fn left(&self) -> usize {
        self.rows * self.bytes.div_ceil(LINE) - self.done / LINE
    }

    /// Lines to request at each of so many opportunities.
    pub(super) const fn share(&self, opportunities: usize) -> usize {
        self.left().div_ceil(opportunities)
    }

    /// Requests the next lines.
    #[inline(always)]
    pub(super) fn request(&mut self, lines: usize) {
        for _ in 0..lines {
            if self.rows == 0 {
                return;
            }
            self.step::<1>();
        }
    }

    /// Requests the next lines of a row, of which there is one at least.
    #[inline(always)]
    fn step<const LINES: usize>(&mut self) {
        let at = self.at.wrapping_add(self.done);
        for i in 0..LINES {
            crate::memory::prefetch(at.wrapping_add(i * LINE));
        }
        self.done += LINES * LINE;
        if self.done >= self.bytes {
            self.done = 0;
            self.at = self.at.wrapping_add(self.stride);
            self.rows -= 1;
        }
    }
}

/// Keys, and then values, to be requested.
#[derive(Clone, Copy)]
pub(super) struct Both {
    pub(super) keys: Ahead,
    pub(super) values: Ahead,
}

impl Both {
    /// As [`Ahead::share`], of all.
    pub(super) const fn share(&self, opportunities: usize) -> usize {
        (self.keys.left() + self.values.left()).div_ceil(opportunities)
    }

    /// Requests the next lines.
    #[inline(always)]
    pub(super) fn request(&mut self, lines: usize) {
        self.next().request(lines);
    }

    #[inline(always)]
    const fn next(&mut self) -> &mut Ahead {
        if self.keys.rows == 0 { &mut self.values } else { &mut self.keys }
    }
}

/// Requests that are spread over what is computed, so many lines at a time.
#[cfg(target_arch = "x86_64")]
pub(super) struct Spread {
    both: Both,
    /// Requests for each unit of what is computed.
    times: usize,
}

#[cfg(target_arch = "x86_64")]
impl Spread {
    /// Lines of a request: more than one, as it costs as much as some of them.
    const LINES: usize = 2;

    /// So many units will be computed.
    pub(super) const fn new(both: Both, units: usize) -> Self {
        Self { both, times: both.share(units * Self::LINES) }
    }

    /// Requests what is due when so many units are computed.
    #[inline(always)]
    pub(super) fn request(&mut self, units: usize) {
        for _ in 0..units * self.times {
            let next = self.both.next();
            if next.rows == 0 {
                return;
            }
            next.step::<{ Self::LINES }>();
        }
    }
}
