//! Replacing the bytes of blocks.

use super::Store;
use crate::block::BlockId;
use crate::error::StoreError;
use crate::slots::SlotState;
use std::path::PathBuf;
use terrace_model::{ByteSize, Extent, FileIndex};

impl Store {
    /// Opens another file to read from, under an index that no other open file has. Waits for
    /// requests in flight first.
    ///
    /// # Errors
    /// If the file cannot be opened, or the engine refuses it.
    pub fn add_file(&mut self, path: PathBuf) -> Result<FileIndex, StoreError> {
        self.land_all()?;
        let index = self.files.add(path)?;
        match self.tell_engine() {
            Ok(()) => Ok(index),
            Err(error) => {
                self.files.remove(index);
                Err(error)
            }
        }
    }

    /// Closes a file, which must contain no blocks and not be read from any more.
    ///
    /// # Errors
    /// [`StoreError::Misuse`] if blocks are in the file; [`StoreError::Engine`] if the engine
    /// stopped working.
    pub fn remove_file(&mut self, file: FileIndex) -> Result<(), StoreError> {
        if let Some(block) = self.blocks.iter().find(|block| block.extent.file == file) {
            return Err(StoreError::Misuse(format!("the file cannot be closed: {block} still lies in it")));
        }
        self.land_all()?;
        self.files.remove(file);
        self.copies.forget(file.0);
        self.forget_checksums(file);
        self.tell_engine()
    }

    /// Changes the extents of blocks. Slots with the old bytes of these blocks become empty, and rows of
    /// them are forgotten; all others stay. Either all blocks are changed, or none.
    ///
    /// # Errors
    /// If an extent is outside of its file; [`StoreError::BudgetTooSmall`] if the slots cannot hold
    /// one; [`StoreError::Misuse`] for a block that is leased or that the store does not have.
    pub fn replace(&mut self, changes: &[(BlockId, Extent)]) -> Result<(), StoreError> {
        for &(block, extent) in changes {
            self.check_ids(&[block])?;
            self.files.check(extent, &self.blocks[block.index()])?;
            let needed = super::slot_len(extent, self.files.align);
            if needed > self.ranges.limit() {
                return Err(StoreError::BudgetTooSmall {
                    tensor: self.blocks[block.index()].to_string(),
                    needed: ByteSize(needed),
                    budget: self.capacity(),
                });
            }
            if self.slots.leases.is_leased(block) {
                return Err(StoreError::Misuse(format!(
                    "{} cannot be replaced: it is leased",
                    self.blocks[block.index()]
                )));
            }
        }
        for &(block, _) in changes {
            self.forget_guess(block);
            self.arrive(block)?;
            self.forget_rows(block)?;
        }
        for &(block, extent) in changes {
            if matches!(self.slots.state(block), SlotState::Resident { .. }) {
                self.evict(block);
            }
            self.blocks[block.index()].extent = extent;
            self.order.resized(block, self.slot_size(block).0);
        }
        self.recount_filling();
        Ok(())
    }

    /// Waits for a block that is being read, for whatever reason.
    fn arrive(&mut self, block: BlockId) -> Result<(), StoreError> {
        self.promote(block);
        while matches!(self.slots.state(block), SlotState::Loading { .. }) {
            self.drive(true)?;
        }
        Ok(())
    }

    /// Waits for all requests that the engine has.
    fn land_all(&mut self) -> Result<(), StoreError> {
        self.background.paused = true;
        let mut landed = Ok(());
        while self.flights.in_flight() > 0 && landed.is_ok() {
            landed = self.drive(true);
        }
        self.background.paused = false;
        landed
    }

    /// Passes the changed files to the engine.
    fn tell_engine(&mut self) -> Result<(), StoreError> {
        let files = self.files.handles()?.into();
        let engine = self.info.name;
        self.engine.set_files(files).map_err(|source| StoreError::Engine { engine, source })
    }
}
