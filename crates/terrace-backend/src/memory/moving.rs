//! Mapped weights move into memory of the process while the model answers.
//!
//! A mapped model answers at once. But its pages lie scattered in memory, and processors may read them slower than large
//! pages, and its weights are in rows, of which kernels read some types slower than interleaved ones. So a thread copies
//! the weights, and has each copy take the place of its pages, at the same address: nobody who computes from them notices.
//! Interleaved weights are put into place between graphs.
//!
//! That takes a core and memory's rate for a while, and may halve the rate of tokens meanwhile. So it is done while nothing
//! computes, as before the first question and between two, or once computing has taken so long that it pays.

use crate::memory::file_map::FileMaps;
use crate::memory::interleaved::InterleavedWeights;
use crate::memory::read_ahead::ReadAhead;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use terrace_kernels::matmul::Interleaving;
use terrace_platform::memory::page_size;
use terrace_platform::own_pages::OwnPages;
use terrace_platform::{control_group, memory};

/// Bytes that are copied at a time: some milliseconds, which bound the time to stop. As many pieces are mappings, of which Linux
/// gives a process 65,530.
const PIECE: usize = 16 << 20;
/// Bytes that are read from both kinds of memory to compare them: caches hold a part at most.
const SAMPLE: usize = 64 << 20;
/// Least sample that says something.
const LEAST_SAMPLE: usize = 16 << 20;
/// Pages of the process are worth a copy if they are read faster by this factor.
const FASTER: f64 = 1.1;
/// Copying while something computes pays once computing has taken so many times as long: about a tenth is gained from then on, and
/// little is lost if nothing follows.
const PAYS_AFTER: u32 = 40;
/// Computing for so long makes it worth a comparison.
const LOOK_AFTER: Duration = Duration::from_secs(10);
/// A pause of so long is none between two tokens.
const QUIET: Duration = Duration::from_millis(200);
/// How often the thread looks whether something has changed.
const LOOK: Duration = Duration::from_millis(20);
/// Bytes of interleaved weights that wait for the end of a graph.
const MOST_READY: usize = 128 << 20;
/// Memory left to others: an eighth of all, and at least so much. They cannot have these pages back, as they could those of a file.
const RESERVE: u64 = 512 << 20;

/// When mapped weights move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum MoveMapped {
    /// While nothing computes, or once it pays; if it makes them faster to read.
    #[default]
    Auto,
    /// At once.
    Now,
    /// Never.
    Off,
}

/// A mapped weight that may be interleaved.
#[derive(Clone, Copy)]
pub struct Candidate {
    pub address: usize,
    pub len: usize,
    pub how: Interleaving,
}

/// A weight that is interleaved, but for its place.
struct Ready {
    weight: Candidate,
    /// Its whole pages.
    pages: OwnPages,
    /// Its bytes before these and after them.
    edges: [Vec<u8>; 2],
}

/// Threads that have something left to move, of all models.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);

/// Returns true if weights of a model may move: otherwise graphs need not say that they are computed.
pub fn is_active() -> bool {
    ACTIVE.load(Ordering::Acquire) > 0
}

/// What the thread and those who compute tell each other.
pub struct Shared {
    stop: AtomicBool,
    gate: Mutex<Gate>,
    interleaved: Arc<InterleavedWeights>,
    /// The number of graphs so far, and the time that they took, in nanoseconds.
    graphs: AtomicU64,
    computed: AtomicU64,
    /// Bytes that are memory of the process.
    moved: AtomicUsize,
    /// The thread has nothing left to do.
    done: AtomicBool,
}

/// What is changed while no graph is being computed.
#[derive(Default)]
struct Gate {
    /// Graphs that are being computed.
    computing: usize,
    ready: Vec<Ready>,
}

impl Shared {
    fn new(interleaved: Arc<InterleavedWeights>) -> Self {
        Self {
            stop: AtomicBool::new(false),
            gate: Mutex::default(),
            interleaved,
            graphs: AtomicU64::new(0),
            computed: AtomicU64::new(0),
            moved: AtomicUsize::new(0),
            done: AtomicBool::new(false),
        }
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that have become memory of the process.
    pub fn moved(&self) -> usize {
        self.moved.load(Ordering::Relaxed)
    }

    /// Returns true if the thread has ended by itself.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Notes that a graph is prepared and computed until the value is dropped. Interleaved weights are put into their places
    /// before.
    pub fn compute(self: &Arc<Self>, began: Instant) -> Computing {
        let mut gate = self.gate();
        self.put_ready(&mut gate);
        gate.computing += 1;
        Computing { shared: Arc::clone(self), began }
    }

    /// Puts interleaved weights into their places, if nothing computes.
    fn put_ready(&self, gate: &mut Gate) {
        if gate.computing > 0 {
            return;
        }
        for Ready { weight: Candidate { address, len, how }, pages, edges } in gate.ready.drain(..) {
            let inner = whole_pages(address..address + len);
            let put = self.interleaved.add_written(address, len, how, || {
                let [before, after] = &edges;
                // SAFETY: whole pages of the weight, which nothing computes from now, and others read through what it is
                // noted in. Its first and last bytes share pages with other weights that are memory of the process already,
                // and are written to in turns.
                unsafe {
                    pages.replace(inner.start)?;
                    std::ptr::copy_nonoverlapping(before.as_ptr(), address as *mut u8, before.len());
                    std::ptr::copy_nonoverlapping(after.as_ptr(), inner.end as *mut u8, after.len());
                }
                std::io::Result::Ok(())
            });
            match put {
                Ok(()) => _ = self.moved.fetch_add(inner.len(), Ordering::Relaxed),
                Err(error) => tracing::debug!(%error, "a weight stays in rows"),
            }
        }
    }
}

/// A graph that is being computed.
pub struct Computing {
    shared: Arc<Shared>,
    began: Instant,
}

impl Drop for Computing {
    fn drop(&mut self) {
        let nanos = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.shared.computed.fetch_add(nanos, Ordering::Relaxed);
        self.shared.graphs.fetch_add(1, Ordering::Relaxed);
        self.shared.gate().computing -= 1;
    }
}

/// A thread that moves weights. Dropping this ends and joins it.
pub struct Moving {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Moving {
    /// Begins, once the files have been read; `None` if nothing is to be done.
    ///
    /// # Errors
    /// The system's: no thread.
    pub fn start(
        when: MoveMapped,
        maps: Arc<FileMaps>,
        ahead: Arc<ReadAhead>,
        candidates: Vec<Candidate>,
        interleaved: Arc<InterleavedWeights>,
    ) -> std::io::Result<Option<Self>> {
        let small = maps.sizes().max().is_none_or(|size| size / 2 < LEAST_SAMPLE);
        if when == MoveMapped::Off || (when == MoveMapped::Auto && small) {
            return Ok(None);
        }
        let shared = Arc::new(Shared::new(interleaved));
        let mover = Mover { when, maps, candidates, shared: Arc::clone(&shared), quiet: None };
        // Before the first graph.
        ACTIVE.fetch_add(1, Ordering::Release);
        let thread = std::thread::Builder::new().name("move weights".into()).spawn(move || mover.run(&ahead));
        let thread = thread.inspect_err(|_| _ = ACTIVE.fetch_sub(1, Ordering::Relaxed))?;
        Ok(Some(Self { shared, thread: Some(thread) }))
    }

    /// What is told about it.
    pub const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The thread does nothing that could panic, and a panic would need no handling.
            let _ = thread.join();
        }
    }
}

/// Why the thread ends before everything has moved.
struct Ended;

/// The thread's own.
struct Mover {
    when: MoveMapped,
    maps: Arc<FileMaps>,
    candidates: Vec<Candidate>,
    shared: Arc<Shared>,
    /// Number of graphs so far, and since when it has been that.
    quiet: Option<(u64, Instant)>,
}

impl Mover {
    fn run(mut self, ahead: &ReadAhead) {
        let ended = self.wait(|_| ahead.is_complete());
        let all = ended.and_then(|()| self.move_all());
        let moved = self.shared.moved();
        match all {
            Ok(()) => tracing::info!(bytes = moved, "mapped weights are in memory of the process"),
            Err(Ended) => tracing::debug!(bytes = moved, "mapped weights stay in the page cache"),
        }
        self.shared.done.store(true, Ordering::Release);
        ACTIVE.fetch_sub(1, Ordering::Relaxed);
    }

    fn move_all(&mut self) -> Result<(), Ended> {
        let mut weights = std::mem::take(&mut self.candidates);
        weights.retain(|weight| !whole_pages(weight.address..weight.address + weight.len).is_empty());
        weights.sort_by_key(|weight| weight.address);
        let mut due = Duration::ZERO;
        let mut in_rows = true;
        if self.when == MoveMapped::Auto {
            self.wait(|mover| mover.may_go_on(LOOK_AFTER))?;
            let Some(compared) = self.compare() else { return Err(Ended) };
            tracing::debug!(?compared, "mapped memory beside that of the process");
            in_rows = compared.own * FASTER < compared.mapped;
            if !in_rows && weights.is_empty() {
                return Err(Ended);
            }
            let bytes: usize = self.maps.sizes().sum();
            due = Duration::from_secs_f64(compared.copied * bytes as f64) * PAYS_AFTER;
        }
        let inner: Vec<_> = weights.iter().map(|w| whole_pages(w.address..w.address + w.len)).collect();
        for range in between(self.maps.ranges(), &inner) {
            // Pages that interleaved weights share with others have to be the process's.
            let needed = |page: &Range<usize>| {
                weights.iter().any(|w| w.address < page.end && page.start < w.address + w.len)
            };
            for piece in pieces(range).filter(|piece| in_rows || needed(piece)) {
                self.move_piece(piece, due)?;
            }
        }
        for weight in weights {
            self.interleave(weight, due)?;
        }
        self.wait_for_ready(0)
    }

    /// Copies a piece, and has the copy take its place.
    fn move_piece(&mut self, piece: Range<usize>, due: Duration) -> Result<(), Ended> {
        self.wait(|mover| mover.may_go_on(due))?;
        let mut pages = own_pages(&piece)?;
        // SAFETY: a mapped piece, whose file was read; the copy has its bytes.
        unsafe {
            copy(piece.start, pages.bytes());
            pages.replace(piece.start).map_err(|error| {
                tracing::debug!(%error, "pages stay mapped");
                Ended
            })?;
        }
        self.shared.moved.fetch_add(piece.len(), Ordering::Relaxed);
        Ok(())
    }

    /// Makes an interleaved copy of a weight, which takes its place once no graph is computed.
    fn interleave(&mut self, weight: Candidate, due: Duration) -> Result<(), Ended> {
        self.wait(|mover| mover.may_go_on(due))?;
        let Candidate { address, len, how } = weight;
        let inner = whole_pages(address..address + len);
        let mut pages = own_pages(&inner)?;
        let (before, after) = (inner.start - address, address + len - inner.end);
        let mut edges = [vec![0; before], vec![0; after]];
        let size = how.group_bytes();
        let (mut rows, mut group) = (vec![0; size], vec![0; size]);
        for at in (0..len).step_by(size) {
            if at / PIECE != (at + size) / PIECE {
                self.wait(|mover| mover.may_go_on(due))?;
            }
            // SAFETY: a group of rows of the weight.
            unsafe { copy(address + at, &mut rows) };
            how.apply(&rows, &mut group);
            let [first, last] = &mut edges;
            write_across(at, &group, [first, pages.bytes(), last]);
        }
        self.shared.gate().ready.push(Ready { weight, pages, edges });
        // What waits for its place is there twice.
        self.wait_for_ready(MOST_READY)
    }

    /// Waits until so many bytes of interleaved weights wait for their places at most.
    fn wait_for_ready(&mut self, most: usize) -> Result<(), Ended> {
        self.wait(|mover| {
            let mut gate = mover.shared.gate();
            mover.shared.put_ready(&mut gate);
            gate.ready.iter().map(|ready| ready.weight.len).sum::<usize>() <= most
        })
    }

    /// Waits until something is so.
    fn wait(&mut self, mut so: impl FnMut(&mut Self) -> bool) -> Result<(), Ended> {
        loop {
            if self.shared.stop.load(Ordering::Relaxed) {
                return Err(Ended);
            }
            if so(self) {
                return Ok(());
            }
            std::thread::park_timeout(LOOK);
        }
    }

    /// Returns true if nothing computes, or computing has taken this long.
    fn may_go_on(&mut self, due: Duration) -> bool {
        if self.when == MoveMapped::Now {
            return true;
        }
        let graphs = self.shared.graphs.load(Ordering::Relaxed);
        let computes = self.shared.gate().computing > 0;
        let since = self.quiet.filter(|&(before, _)| before == graphs && !computes);
        let (_, since) = *self.quiet.insert(since.unwrap_or((graphs, Instant::now())));
        let computed = Duration::from_nanos(self.shared.computed.load(Ordering::Relaxed));
        since.elapsed() >= QUIET || computed >= due
    }

    /// Compares mapped memory and that of the process; `None` if the files are too small to tell, or there is no memory.
    fn compare(&self) -> Option<Compared> {
        let range = self.maps.ranges().max_by_key(Range::len)?;
        let len = SAMPLE.min(range.len() / 2) / page_size() * page_size();
        if len < LEAST_SAMPLE {
            return None;
        }
        let start = (range.start + range.len() / 4) / page_size() * page_size();
        let mut pages = own_pages(&(start..start + len)).ok()?;
        let began = Instant::now();
        // SAFETY: a part of the mapping.
        unsafe { copy(start, pages.bytes()) };
        let copied = began.elapsed();
        let own = pages.bytes().as_ptr() as usize;
        let mut best = [Duration::MAX; 2];
        for _ in 0..3 {
            for (address, best) in [start, own].into_iter().zip(&mut best) {
                let began = Instant::now();
                // SAFETY: parts of the mapping, and of the copy.
                std::hint::black_box(unsafe { read(address, len) });
                *best = began.elapsed().min(*best);
            }
        }
        let of_byte = |time: Duration| time.as_secs_f64() / len as f64;
        Some(Compared { copied: of_byte(copied), mapped: of_byte(best[0]), own: of_byte(best[1]) })
    }
}

/// Seconds that a byte takes.
#[derive(Debug)]
struct Compared {
    copied: f64,
    mapped: f64,
    own: f64,
}

/// Memory for a range, if others keep enough.
fn own_pages(range: &Range<usize>) -> Result<OwnPages, Ended> {
    let room =
        memory::available().unwrap_or(u64::MAX).min(control_group::tightest_room().unwrap_or(u64::MAX));
    let reserve = RESERVE.max(memory::total().unwrap_or(0) / 8);
    if room < reserve + range.len() as u64 {
        tracing::debug!(room, "no memory to move weights to");
        return Err(Ended);
    }
    OwnPages::like(range.start, range.len()).map_err(|error| {
        tracing::debug!(%error, "no memory to move weights to");
        Ended
    })
}

/// The whole pages within a range.
fn whole_pages(range: Range<usize>) -> Range<usize> {
    let page = page_size();
    let start = range.start.next_multiple_of(page);
    start..(range.end / page * page).max(start)
}

/// Parts of a range that end where pieces of all memory do, so that large pages stay whole.
fn pieces(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let end = (at + 1).next_multiple_of(PIECE).min(range.end);
        let piece = at..end;
        at = end;
        (!piece.is_empty()).then_some(piece)
    })
}

/// The parts of some ranges of whole pages that are in none of `left_out`, which are sorted.
fn between(ranges: impl Iterator<Item = Range<usize>>, left_out: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    for range in ranges {
        let mut start = range.start;
        for out in left_out.iter().filter(|out| out.start < range.end && range.start < out.end) {
            parts.push(start..out.start);
            start = out.end;
        }
        parts.push(start..range.end);
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Copies bytes from an address.
///
/// # Safety
/// There are so many bytes, which nothing writes to.
unsafe fn copy(address: usize, to: &mut [u8]) {
    // SAFETY: the caller's contract; new memory is elsewhere.
    unsafe { std::ptr::copy_nonoverlapping(address as *const u8, to.as_mut_ptr(), to.len()) };
}

/// Writes bytes from byte `at` on of what some parts are together.
fn write_across(at: usize, bytes: &[u8], parts: [&mut [u8]; 3]) {
    let mut start = 0;
    for part in parts {
        let end = start + part.len();
        let (from, to) = (at.max(start), (at + bytes.len()).min(end));
        if from < to {
            part[from - start..to - start].copy_from_slice(&bytes[from - at..to - at]);
        }
        start = end;
    }
}

/// Reads all words from an address on.
///
/// # Safety
/// There are so many bytes, which nothing writes to.
unsafe fn read(address: usize, len: usize) -> u64 {
    let mut sums = [0u64; 8];
    for line in (address..address + len / 64 * 64).step_by(64) {
        // SAFETY: the caller's contract.
        let words = unsafe { (line as *const [u64; 8]).read_unaligned() };
        sums.iter_mut().zip(words).for_each(|(sum, word)| *sum ^= word);
    }
    sums.into_iter().fold(0, |all, sum| all ^ sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::file_map::tests::file;
    use std::path::PathBuf;
    use terrace_kernels::matmul::Product;
    use terrace_kernels::{Isa, WeightType};
    use terrace_platform::mappings::Maps;

    #[test]
    fn parts_lie_between_what_is_left_out() {
        let of = |out: &[Range<usize>]| between([10..50, 60..90].into_iter(), out);
        assert_eq!(of(&[]), [10..50, 60..90]);
        assert_eq!(of(&[10..20, 20..30, 45..50, 70..71]), [30..45, 60..70, 71..90]);
        assert_eq!(of(&[10..50, 60..90]), [0..0; 0]);
        let some = PIECE * 3 + 5;
        let pieces: Vec<_> = pieces(some..some + 2 * PIECE).collect();
        let (first, second) = (4 * PIECE, 5 * PIECE);
        assert_eq!(pieces, [some..first, first..second, second..some + 2 * PIECE]);
    }

    #[test]
    fn bytes_are_written_across_parts() {
        let bytes: Vec<u8> = (1..=20).collect();
        for size in [1, 3, 7, 20] {
            let (mut a, mut b, mut c) = ([0; 4], [0; 11], [0; 5]);
            for (i, bytes) in bytes.chunks(size).enumerate() {
                write_across(i * size, bytes, [&mut a, &mut b, &mut c]);
            }
            assert_eq!([&a[..], &b, &c].concat(), bytes, "{size}");
        }
    }

    /// The thread, for weights of a file whose last page is shared with nothing.
    fn moved(maps: &Arc<FileMaps>, candidates: Vec<Candidate>) -> Arc<Shared> {
        let shared = Arc::new(Shared::new(Arc::default()));
        let (when, maps) = (MoveMapped::Now, Arc::clone(maps));
        let mut mover = Mover { when, maps, candidates, shared: Arc::clone(&shared), quiet: None };
        assert!(mover.move_all().is_ok());
        shared
    }

    #[test]
    fn everything_moves_and_stays_what_it_is() {
        if OwnPages::like(0, page_size()).is_err() {
            // A system on which mapped weights stay mapped.
            return;
        }
        let files = [file(3 << 20), file(2 * PIECE + 70_001)];
        let paths: Vec<PathBuf> = files.iter().map(|file| file.path().to_owned()).collect();
        let maps = Arc::new(FileMaps::open(&paths).unwrap());
        let base = |file: usize| maps.ranges().nth(file).unwrap().start;
        // A weight that begins and ends within pages, and fills the rest of its file.
        let product = Product::new(WeightType::Q4_0, 64, Isa::best()).unwrap();
        let how = product.with_interleaved().and_then(|product| product.interleaving());
        let group = how.map_or(576, |how| how.group_bytes());
        let len = 2 * PIECE / group * group;
        let start = 2 * PIECE + 70_001 - len;
        let weight = how.map(|how| Candidate { address: base(1) + start, len, how });
        let shared = moved(&maps, weight.into_iter().collect());
        let interleaved = &shared.interleaved;
        assert!(
            maps.ranges().all(|range| range.step_by(4096).all(|at| Maps::of_process().find(at).is_none()))
        );
        for (file, size) in [3 << 20, start, 2 * PIECE + 70_001].into_iter().enumerate() {
            let from = if file == 2 { start } else { 0 };
            let mut bytes = vec![0; size - from];
            // SAFETY: bytes of the mapping.
            unsafe { interleaved.read(base(file.min(1)) + from, 0, &mut bytes) };
            assert!(bytes.iter().zip(from..).all(|(byte, i)| *byte == (i % 251) as u8), "{file}");
        }
        assert_eq!(interleaved.size(), how.map_or((0, 0), |_| (1, len)));
        let pages: usize = maps.ranges().map(|range| range.len()).sum();
        assert_eq!(shared.moved(), pages);
    }

    #[test]
    fn it_waits_until_nothing_computes_or_it_pays() {
        let maps = Arc::new(FileMaps::open(&[file(1 << 20).path().to_owned()]).unwrap());
        let shared = Arc::new(Shared::new(Arc::default()));
        let mut mover = Mover {
            when: MoveMapped::Auto,
            maps,
            candidates: Vec::new(),
            shared: Arc::clone(&shared),
            quiet: None,
        };
        let graph = shared.compute(Instant::now().checked_sub(Duration::from_secs(3)).unwrap());
        assert!(!mover.may_go_on(Duration::from_secs(2)));
        drop(graph);
        assert!(mover.may_go_on(Duration::from_secs(2)) && !mover.may_go_on(Duration::from_secs(4)));
        std::thread::sleep(QUIET + LOOK);
        assert!(mover.may_go_on(Duration::from_secs(4)));
        let graph = shared.compute(Instant::now());
        assert!(!mover.may_go_on(Duration::from_secs(4)));
        drop(graph);
        // A file this small says nothing.
        assert!(mover.compare().is_none() && mover.move_all().is_err());
    }
}
