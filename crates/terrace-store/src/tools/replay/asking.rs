//! How the backend asks the store for an MoE block, step for step.
//!
//! Experts as a whole ([`Bundles`]) where slots hold two of them. Else matrix by matrix: the first matrix asks for its experts, then for those of the block's other matrices as far as there is room; each
//! matrix that follows gives back what the ones before it held. Where the slots do not hold a matrix's experts at once, they
//! come in waves, and what was asked for ahead makes room.

use crate::block::BlockId;
use crate::bundles::Bundles;
use crate::error::StoreError;
use crate::fetch::Fetch;
use crate::purpose::Use;
use crate::store::Store;

/// The fetches of one graph's MoE blocks.
#[derive(Debug)]
pub struct Asking {
    bundles: Bundles,
    matrices: Vec<Matrix>,
    blocks: Vec<BlockId>,
    /// What the MoE block under way asks for.
    how: Use,
}

#[derive(Debug, Default)]
struct Matrix {
    first: u32,
    fetch: Fetch,
    /// The touched experts before this one are computed.
    from: usize,
    /// From there on, this many are leased or on their way.
    accepted: usize,
}

impl Asking {
    /// Nothing is asked for.
    pub fn new() -> Self {
        Self { bundles: Bundles::default(), matrices: Vec::new(), blocks: Vec::new(), how: Use::Decode }
    }

    /// One MoE block: the first blocks of its `tensors`, in order, the experts that its tokens go to, ascending, and how
    /// they are used.
    pub fn block(
        &mut self,
        store: &mut Store,
        tensors: impl Iterator<Item = BlockId>,
        touched: &[u32],
        how: Use,
    ) -> Result<(), StoreError> {
        self.how = how;
        // A block gives back what the block before held.
        self.end(store);
        let firsts: Vec<BlockId> = tensors.collect();
        if firsts.len() > 1 && Bundles::suit(store, firsts.iter().copied()) {
            return self.experts(store, &firsts, touched);
        }
        let mut count = 0;
        for first in firsts {
            if count == self.matrices.len() {
                self.matrices.push(Matrix::default());
            }
            self.matrices[count].first = first.0;
            count += 1;
        }
        for current in 0..count {
            for earlier in &mut self.matrices[..current] {
                earlier.give_back(store);
            }
            for next in current..count {
                if !self.request(store, next, touched)? {
                    break;
                }
            }
            self.compute(store, current, count, touched)?;
        }
        Ok(())
    }

    /// Experts as a whole: what is there is computed at once.
    fn experts(&mut self, store: &mut Store, firsts: &[BlockId], touched: &[u32]) -> Result<(), StoreError> {
        self.bundles.begin(store, firsts.iter().copied(), touched, self.how)?;
        loop {
            while self.bundles.next(store, 0)?.is_some() {}
            if self.bundles.is_exhausted() {
                return Ok(());
            }
            if !self.bundles.go_on(store, 1)? {
                return Err(StoreError::Misuse("the slots have no room for any of the experts".into()));
            }
        }
    }

    /// The graph is over: all leases go.
    pub fn end(&mut self, store: &mut Store) {
        self.bundles.end(store);
        for matrix in &mut self.matrices {
            matrix.give_back(store);
            matrix.from = 0;
        }
    }

    /// Whether all touched experts of the matrix are leased or on their way.
    fn request(&mut self, store: &mut Store, matrix: usize, touched: &[u32]) -> Result<bool, StoreError> {
        let matrix = &mut self.matrices[matrix];
        if matrix.accepted == 0 {
            self.blocks.clear();
            self.blocks.extend(touched[matrix.from..].iter().map(|expert| BlockId(matrix.first + expert)));
            matrix.accepted = store.start_as(&mut matrix.fetch, &self.blocks, self.how)?;
        }
        Ok(matrix.from + matrix.accepted == touched.len())
    }

    fn compute(
        &mut self,
        store: &mut Store,
        current: usize,
        count: usize,
        touched: &[u32],
    ) -> Result<(), StoreError> {
        loop {
            let matrix = &mut self.matrices[current];
            while store.next(&mut matrix.fetch)?.is_some() {}
            if matrix.from + matrix.accepted == touched.len() {
                return Ok(());
            }
            let computed = matrix.accepted;
            for sibling in &mut self.matrices[current + 1..count] {
                sibling.give_back(store);
            }
            let matrix = &mut self.matrices[current];
            matrix.give_back(store);
            matrix.from += computed;
            self.request(store, current, touched)?;
            if self.matrices[current].accepted == 0 {
                return Err(StoreError::Misuse("a wave without experts".into()));
            }
        }
    }
}

impl Matrix {
    fn give_back(&mut self, store: &mut Store) {
        store.release(&mut self.fetch);
        self.accepted = 0;
    }
}
