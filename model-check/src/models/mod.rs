//! The models.

mod barrier;
mod handover;
mod lease;
mod queue;
mod sequence;
mod store;
mod waves;

/// Which interleavings of a model are tried.
#[derive(Clone, Copy)]
pub enum Search {
    All,
    /// All in which a thread that could go on is interrupted at most so many times.
    Preemptions(usize),
    /// So many, at random.
    Random(usize),
}

/// What threads do, and what must hold.
#[derive(Clone, Copy)]
pub struct Model {
    pub name: &'static str,
    pub search: Search,
    pub run: fn(),
}

impl Model {
    const fn all(name: &'static str, run: fn()) -> Self {
        Self { name, search: Search::All, run }
    }

    const fn preempted(name: &'static str, most: usize, run: fn()) -> Self {
        Self { name, search: Search::Preemptions(most), run }
    }

    const fn random(name: &'static str, count: usize, run: fn()) -> Self {
        Self { name, search: Search::Random(count), run }
    }
}

/// All models.
pub fn all() -> Vec<Model> {
    [
        barrier::MODELS,
        waves::MODELS,
        sequence::MODELS,
        handover::MODELS,
        lease::MODELS,
        queue::MODELS,
        store::MODELS,
    ]
    .into_iter()
    .flatten()
    .copied()
    .collect()
}

/// A value that threads write and read as a barrier or a counter allows them to: loom fails at two
/// accesses that are not ordered.
#[derive(Debug, Default)]
struct Cell(loom::cell::UnsafeCell<usize>);

// SAFETY: unordered accesses are what loom looks for; it runs one thread at a time.
unsafe impl Sync for Cell {}

impl Cell {
    fn get(&self) -> usize {
        // SAFETY: as above.
        self.0.with(|value| unsafe { *value })
    }

    fn set(&self, to: usize) {
        // SAFETY: as above.
        self.0.with_mut(|value| unsafe { *value = to });
    }
}
