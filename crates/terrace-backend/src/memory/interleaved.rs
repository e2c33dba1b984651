//! Weights in memory whose rows are interleaved, and their way back into rows.
//!
//! The load, or for mapped weights what follows it (`memory/moving/`), interleaves what tiles multiply from a single row
//! on, guessing from names and shapes which weights only products read. A graph that uses such a weight otherwise, before
//! any node of it runs, has it put back for good (`graph/interleaved.rs`); everything else reads through the buffer.

use crate::tiles::{expert_tile, in_layout};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_ggml::Tensor;
use terrace_kernels::matmul::Interleaving;
use terrace_model::Name;

/// Changes of what is interleaved, of all models.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// Number of changes of what is interleaved so far: what was found in a graph before the last one no longer holds.
pub fn changes() -> u64 {
    CHANGES.load(Ordering::Relaxed)
}

/// Weights of a model whose rows are interleaved, by address.
#[derive(Default)]
pub struct InterleavedWeights(Mutex<HashMap<usize, Interleaved>>);

struct Interleaved {
    len: usize,
    how: Interleaving,
}

/// The interleaving of a weight that is being loaded; `None` if it stays as it is in its file.
pub fn candidate(tensor: Tensor<'_>) -> Option<Interleaving> {
    let [length, rows, matrices, more] = tensor.ne().map(|n| n.unsigned_abs() as usize);
    let name = tensor.name();
    let Name { role, kind, .. } = Name::of(&name);
    // Rows of embeddings are looked up, and routers are read ahead of their products.
    let multiplied = kind == "weight"
        && !role.contains("embd")
        && !role.contains("gate_inp")
        && (matrices == 1 || role.contains("_exps"));
    if !multiplied || more != 1 || !rows.is_multiple_of(Interleaving::ROWS) || !tensor.is_contiguous() {
        return None;
    }
    in_layout(expert_tile(tensor.ty(), length)?, true)?.interleaving()
}

/// Interleaves a weight where it is.
pub fn interleave(how: Interleaving, bytes: &mut [u8]) {
    rewrite(how, bytes, Interleaving::apply);
}

/// Rewrites a weight where it is, one group of rows after the other.
fn rewrite(how: Interleaving, bytes: &mut [u8], write: impl Fn(&Interleaving, &[u8], &mut [u8])) {
    let mut group = vec![0; how.group_bytes()];
    for rows in bytes.chunks_exact_mut(group.len()) {
        group.copy_from_slice(rows);
        write(&how, &group, rows);
    }
}

impl InterleavedWeights {
    fn all(&self) -> MutexGuard<'_, HashMap<usize, Interleaved>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the `len` bytes at an address are interleaved.
    pub fn add(&self, address: usize, len: usize, how: Interleaving) {
        let written = self.add_written(address, len, how, || Ok::<(), std::convert::Infallible>(()));
        written.unwrap_or_else(|never| match never {});
    }

    /// The same for bytes that `write` interleaves, which nobody reads by [`InterleavedWeights::read`] meanwhile.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn add_written<E>(
        &self,
        address: usize,
        len: usize,
        how: Interleaving,
        write: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut all = self.all();
        write()?;
        all.insert(address, Interleaved { len, how });
        CHANGES.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Returns true if the weight at an address is interleaved.
    pub fn has(&self, address: usize) -> bool {
        self.all().contains_key(&address)
    }

    /// Number of interleaved weights, and their bytes.
    pub fn size(&self) -> (usize, usize) {
        let all = self.all();
        (all.len(), all.values().map(|weight| weight.len).sum())
    }

    /// Forgets the weights in a range of addresses, which is freed.
    pub fn forget(&self, addresses: std::ops::Range<usize>) {
        self.all().retain(|address, _| !addresses.contains(address));
    }

    /// Puts a weight back into rows. Returns false if it is not interleaved.
    ///
    /// # Safety
    /// The address is that of a live weight, whose bytes nothing else accesses meanwhile.
    pub unsafe fn put_back(&self, address: usize) -> bool {
        let Some(Interleaved { len, how }) = self.all().remove(&address) else { return false };
        // SAFETY: the caller's contract: the weight has as many bytes, since it was noted with them.
        let bytes = unsafe { std::slice::from_raw_parts_mut(address as *mut u8, len) };
        rewrite(how, bytes, Interleaving::undo);
        CHANGES.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Writes bytes of a weight from `offset` on as they are in rows.
    ///
    /// # Safety
    /// The address is that of a live weight, which has these bytes.
    pub unsafe fn read(&self, address: usize, offset: usize, to: &mut [u8]) {
        let all = self.all();
        let Some(Interleaved { how, .. }) = all.get(&address) else {
            // SAFETY: the caller's contract; a target is elsewhere.
            unsafe {
                std::ptr::copy_nonoverlapping((address as *const u8).add(offset), to.as_mut_ptr(), to.len());
            }
            return;
        };
        let size = how.group_bytes();
        let mut rows = vec![0; size];
        let end = offset + to.len();
        for group in offset / size..end.div_ceil(size) {
            // SAFETY: the caller's contract: weights have whole groups.
            let group_bytes =
                unsafe { std::slice::from_raw_parts((address as *const u8).add(group * size), size) };
            how.undo(group_bytes, &mut rows);
            let (from, until) = (offset.max(group * size), end.min((group + 1) * size));
            to[from - offset..until - offset]
                .copy_from_slice(&rows[from - group * size..until - group * size]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_kernels::matmul::Product;
    use terrace_kernels::{Isa, WeightType};

    #[test]
    fn interleaved_weights_read_as_rows_and_come_back() {
        let product = Product::new(WeightType::Q4_0, 64, Isa::best()).expect("whole blocks");
        let Some(how) = product.with_interleaved().and_then(|product| product.interleaving()) else { return };
        let rows: Vec<u8> = (0..how.group_bytes() * 3).map(|i| (i * 7 % 251) as u8).collect();
        let mut bytes = rows.clone();
        interleave(how, &mut bytes);
        assert_ne!(bytes, rows);
        let (all, address) = (InterleavedWeights::default(), bytes.as_mut_ptr() as usize);
        all.add(address, bytes.len(), how);
        assert_eq!(all.size(), (1, rows.len()));
        for (offset, len) in [(0, rows.len()), (5, 1), (how.group_bytes() - 3, 7), (700, 900), (3, 0)] {
            let mut got = vec![0; len];
            // SAFETY: these bytes.
            unsafe { all.read(address, offset, &mut got) };
            assert_eq!(got, rows[offset..offset + len]);
        }
        let before = changes();
        // SAFETY: these bytes.
        unsafe {
            assert!(all.put_back(address) && !all.put_back(address));
            assert!(!all.has(address));
        }
        assert_eq!(bytes, rows);
        let mut got = [0; 9];
        // SAFETY: these bytes.
        unsafe { all.read(address, 7, &mut got) };
        assert_eq!(got, rows[7..16]);
        assert!(changes() > before);
        all.add(address, bytes.len(), how);
        all.forget(address..address + 1);
        assert!(!all.has(address));
    }
}
