//! Requests the experts of an MoE block from the store in the same steps as the backend.
//!
//! If slots hold two whole experts, experts are requested as a whole ([`Bundles`]). Otherwise they
//! are requested matrix by matrix: first those of the first matrix, then those of the block's other
//! matrices as far as there is room. Each following matrix releases what the ones before it held.
//! If the slots do not hold a matrix's experts at once, these come in waves, and what was requested
//! ahead makes room.

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
    /// Use of experts by the current MoE block.
    how: Use,
}

#[derive(Debug, Default)]
struct Matrix {
    first: u32,
    fetch: Fetch,
    /// Index of the first touched expert that is not computed yet.
    from: usize,
    /// Number of experts from there on that are leased or being read.
    accepted: usize,
}

impl Asking {
    /// Makes a value without requests.
    pub fn new() -> Self {
        Self { bundles: Bundles::default(), matrices: Vec::new(), blocks: Vec::new(), how: Use::Decode }
    }

    /// Requests one MoE block: the first blocks of its `tensors` in order, the experts that its
    /// tokens use, ascending, and how they are used.
    pub fn block(
        &mut self,
        store: &mut Store,
        tensors: impl Iterator<Item = BlockId>,
        touched: &[u32],
        how: Use,
    ) -> Result<(), StoreError> {
        self.how = how;
        // An MoE block first releases what the one before held.
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

    /// Requests whole experts. Those that arrive count as computed at once.
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

    /// Ends the graph: releases all leases.
    pub fn end(&mut self, store: &mut Store) {
        self.bundles.end(store);
        for matrix in &mut self.matrices {
            matrix.give_back(store);
            matrix.from = 0;
        }
    }

    /// Requests experts of a matrix. Returns whether all of its touched experts are leased or being
    /// read.
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
