//! The thread that moves weights.

use super::pages::{PIECE, between, copy, own_pages, pieces, read, whole_pages, write_across};
use super::shared::{Candidate, Ready, Shared};
use super::{ACTIVE, MoveMapped};
use crate::memory::file_map::FileMaps;
use crate::memory::read_ahead::ReadAhead;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use terrace_platform::memory::page_size;

/// Bytes that are read from both kinds of memory to compare them: caches hold a part at most.
const SAMPLE: usize = 64 << 20;
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
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Bytes of interleaved weights that wait for the end of a graph.
const MOST_READY: usize = 128 << 20;
/// Least sample that says something.
pub(super) const LEAST_SAMPLE: usize = 16 << 20;

/// The thread ends before everything has moved.
pub(super) struct Unmoved;

/// The thread's own.
pub(super) struct Mover {
    when: MoveMapped,
    maps: Arc<FileMaps>,
    candidates: Vec<Candidate>,
    shared: Arc<Shared>,
    /// Number of graphs so far, and since when it has been that.
    quiet: Option<(u64, Instant)>,
}

impl Mover {
    pub(super) fn new(
        when: MoveMapped,
        maps: Arc<FileMaps>,
        candidates: Vec<Candidate>,
        shared: Arc<Shared>,
    ) -> Self {
        Self { when, maps, candidates, shared, quiet: None }
    }

    pub(super) fn run(mut self, ahead: &ReadAhead) {
        let ended = self.wait(|_| ahead.is_complete());
        let all = ended.and_then(|()| self.move_all());
        let moved = self.shared.moved();
        match all {
            Ok(()) => tracing::info!(bytes = moved, "mapped weights are in memory of the process"),
            Err(Unmoved) => tracing::debug!(bytes = moved, "mapped weights stay in the page cache"),
        }
        self.shared.end();
        ACTIVE.fetch_sub(1, Ordering::Relaxed);
    }

    fn move_all(&mut self) -> Result<(), Unmoved> {
        let mut weights = std::mem::take(&mut self.candidates);
        weights.retain(|weight| !whole_pages(weight.address..weight.address + weight.len).is_empty());
        weights.sort_by_key(|weight| weight.address);
        let mut due = Duration::ZERO;
        let mut in_rows = true;
        if self.when == MoveMapped::Auto {
            self.wait(|mover| mover.may_go_on(LOOK_AFTER))?;
            let Some(compared) = self.compare() else { return Err(Unmoved) };
            tracing::debug!(?compared, "mapped memory beside that of the process");
            in_rows = compared.own * FASTER < compared.mapped;
            if !in_rows && weights.is_empty() {
                return Err(Unmoved);
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
    fn move_piece(&mut self, piece: Range<usize>, due: Duration) -> Result<(), Unmoved> {
        self.wait(|mover| mover.may_go_on(due))?;
        let mut pages = own_pages(&piece)?;
        // SAFETY: a mapped piece, whose file was read; the copy has its bytes.
        unsafe {
            copy(piece.start, pages.bytes());
            pages.replace(piece.start).map_err(|error| {
                tracing::debug!(%error, "pages stay mapped");
                Unmoved
            })?;
        }
        self.shared.add_moved(piece.len());
        Ok(())
    }

    /// Makes an interleaved copy of a weight, which takes its place once no graph is computed.
    fn interleave(&mut self, weight: Candidate, due: Duration) -> Result<(), Unmoved> {
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
        self.shared.add_ready(Ready { weight, pages, edges });
        // What waits for its place is there twice.
        self.wait_for_ready(MOST_READY)
    }

    /// Waits until so many bytes of interleaved weights wait for their places at most.
    fn wait_for_ready(&mut self, most: usize) -> Result<(), Unmoved> {
        self.wait(|mover| mover.shared.put_and_count() <= most)
    }

    /// Waits until something is so.
    fn wait(&mut self, mut so: impl FnMut(&mut Self) -> bool) -> Result<(), Unmoved> {
        loop {
            if self.shared.is_stopped() {
                return Err(Unmoved);
            }
            if so(self) {
                return Ok(());
            }
            std::thread::park_timeout(POLL_INTERVAL);
        }
    }

    /// Returns true if nothing computes, or computing has taken this long.
    fn may_go_on(&mut self, due: Duration) -> bool {
        if self.when == MoveMapped::Now {
            return true;
        }
        let (graphs, computes, computed) = self.shared.graphs();
        let since = self.quiet.filter(|&(before, _)| before == graphs && !computes);
        let (_, since) = *self.quiet.insert(since.unwrap_or((graphs, Instant::now())));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::file_map::tests::file;
    use std::path::PathBuf;
    use terrace_kernels::matmul::Product;
    use terrace_kernels::{Isa, WeightType};
    use terrace_platform::mappings::Maps;
    use terrace_platform::own_pages::OwnPages;

    /// The thread, for weights of a file whose last page is shared with nothing.
    fn moved(maps: &Arc<FileMaps>, candidates: Vec<Candidate>) -> Arc<Shared> {
        let shared = Arc::new(Shared::new(Arc::default()));
        let (when, maps) = (MoveMapped::Now, Arc::clone(maps));
        let mut mover = Mover::new(when, maps, candidates, Arc::clone(&shared));
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
        let interleaved = shared.interleaved();
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
        let mut mover = Mover::new(MoveMapped::Auto, maps, Vec::new(), Arc::clone(&shared));
        let graph = shared.compute(Instant::now().checked_sub(Duration::from_secs(3)).unwrap());
        assert!(!mover.may_go_on(Duration::from_secs(2)));
        drop(graph);
        assert!(mover.may_go_on(Duration::from_secs(2)) && !mover.may_go_on(Duration::from_secs(4)));
        std::thread::sleep(QUIET + POLL_INTERVAL);
        assert!(mover.may_go_on(Duration::from_secs(4)));
        let graph = shared.compute(Instant::now());
        assert!(!mover.may_go_on(Duration::from_secs(4)));
        drop(graph);
        // A file this small says nothing.
        assert!(mover.compare().is_none() && mover.move_all().is_err());
    }
}
