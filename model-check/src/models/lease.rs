//! `terrace_store::lease`: bytes are overwritten only after all leases on them have ended, whichever
//! threads end them, and a lease that was voided ends no later one.

use super::{Cell, Model};
use crate::block::BlockId;
use crate::lease::LeaseTable;
use loom::thread;
use std::sync::Arc;

pub const MODELS: &[Model] =
    &[Model::preempted("lease-evicted", 3, evicted), Model::all("lease-voided", voided)];

const BLOCK: BlockId = BlockId(0);

/// Two threads read a block and release it, while the store moves and evicts it as soon as it may.
fn evicted() {
    let shared = Arc::new((LeaseTable::new(1), Cell::default()));
    let (table, bytes) = &*shared;
    bytes.set(1);
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let lease = table.lease(BLOCK);
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                assert_eq!(shared.1.get(), 1, "the bytes of another block");
                assert!(shared.0.release(BLOCK, lease), "a lease ends once");
            })
        })
        .collect();
    while table.is_leased(BLOCK) {
        thread::yield_now();
    }
    bytes.set(2);
    table.renew(BLOCK);
    for reader in readers {
        reader.join().unwrap();
    }
    assert!(!table.any_leased());
}

/// A read fails while its consumer gives up on another thread; the block is then read again.
fn voided() {
    let table = Arc::new(LeaseTable::new(1));
    let void = table.lease(BLOCK);
    let consumer = {
        let table = Arc::clone(&table);
        thread::spawn(move || table.release(BLOCK, void))
    };
    table.renew(BLOCK);
    let lease = table.lease(BLOCK);
    consumer.join().unwrap();
    assert!(table.is_leased(BLOCK), "a voided lease has ended this one");
    assert!(!table.release(BLOCK, void) && table.release(BLOCK, lease) && !table.any_leased());
}
