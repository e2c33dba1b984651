//! The lanes of a model, as graphs use them.

use crate::lanes::Lanes;
use std::any::Any;
use std::ffi::c_void;
use std::sync::MutexGuard;
use terrace_backend::{
    AnyLanes, BackendError, Block, ExpertLanes, Layout, MATRICES, PairRows, PassKind, Routing, Weights,
};
use terrace_model::LayerId;
use terrace_store::{BlockId, Store};

/// The lanes of a model's weights, if it has any. No graph runs while this is kept.
pub struct OfWeights<'w>(MutexGuard<'w, Option<Box<AnyLanes>>>);

impl Lanes {
    /// The lanes of these weights; change them between graphs. Waits for a graph that is being computed.
    pub fn of(weights: &Weights) -> OfWeights<'_> {
        OfWeights(weights.lanes())
    }

    /// Has graphs with these weights use the lanes.
    pub fn used_by(self, weights: &Weights) {
        *weights.lanes() = Some(Box::new(self));
    }
}

impl OfWeights<'_> {
    pub fn get(&self) -> Option<&Lanes> {
        let any: &dyn Any = &**self.0.as_ref()?;
        any.downcast_ref()
    }

    /// The lanes, to be changed.
    pub fn get_mut(&mut self) -> Option<&mut Lanes> {
        let any: &mut dyn Any = &mut **self.0.as_mut()?;
        any.downcast_mut()
    }
}

impl ExpertLanes for Lanes {
    fn contested(&self) -> Vec<LayerId> {
        self.contested().collect()
    }

    fn copied(&self) -> Vec<(LayerId, u32)> {
        self.copies().collect()
    }

    fn holds(&self, layer: LayerId, expert: u32) -> bool {
        self.holds(layer, expert)
    }

    fn find_again(&mut self, changed: &[u32], addresses: &dyn Fn(&[u32]) -> Option<Vec<usize>>) {
        self.find_again(changed, addresses);
    }

    fn refresh(&mut self, layout: &Layout, changed: &[u32], store: &mut Store) {
        self.refresh(layout, changed, store);
    }

    fn adopt(&mut self, block: &Block, top_k: usize) -> Option<usize> {
        self.adopt(block, top_k)
    }

    fn layer_of(&self, first: BlockId) -> Option<usize> {
        self.layer_of(first)
    }

    fn unrecognised(&mut self, layer: usize, large: bool) {
        self.unrecognised(layer, large);
    }

    fn not_fused(&mut self) {
        self.not_fused();
    }

    fn pass(&mut self, store: &mut Store) {
        self.pass(store);
    }

    fn begin_piece(&mut self, kind: Option<PassKind>) {
        self.begin_piece(kind);
    }

    fn bypass(&mut self, bypassed: &[(usize, u64)]) {
        self.bypass(bypassed);
    }

    fn between(&mut self, store: &mut Store) {
        self.between(store);
    }

    fn has(&self, layer: usize, expert: u32) -> bool {
        self.has(layer, expert)
    }

    fn begin(&mut self, layer: usize, routing: &Routing, rows: PairRows<'_>, store: &Store) -> bool {
        self.begin(layer, routing, rows, store)
    }

    fn took(&self, touched: usize) -> bool {
        self.took(touched)
    }

    fn awaits(&self, touched: usize) -> bool {
        self.awaits(touched)
    }

    fn send(&mut self, touched: usize, id: usize, addresses: [usize; MATRICES]) {
        self.send(touched, id, addresses);
    }

    fn has_read(&self, into: &mut Vec<usize>, wait: bool) -> bool {
        self.has_read(into, wait)
    }

    fn end_sending(&self) {
        self.end_sending();
    }

    unsafe fn finish(
        &mut self,
        output: *mut c_void,
        stride: usize,
        store: &mut Store,
    ) -> Result<(), BackendError> {
        // SAFETY: the caller's contract.
        unsafe { self.finish(output, stride, store) }
    }

    fn end(&mut self) {
        self.end();
    }
}
