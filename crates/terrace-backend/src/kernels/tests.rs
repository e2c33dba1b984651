//! Compares kernels with ggml's own, bit by bit.

use super::*;

#[cfg(target_arch = "x86_64")]
#[test]
fn kernels_round_as_ggml_does() {
    for (ty, kernel) in KERNELS {
        let kernel = kernel();
        assert_eq!(kernel.is_some(), has_instructions());
        if let Some(kernel) = kernel {
            assert!(kernel.agrees(), "{ty:?}");
            assert!(RowKernel::of(ty).is_some());
        }
    }
    assert!(RowKernel::of(DataType::F32).is_none());
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_kernel_that_rounds_otherwise_is_noticed() {
    /// Computes correct results, but flips the last bit of one.
    unsafe fn off(
        weights: *const u8,
        stride: usize,
        count: usize,
        blocks: usize,
        inputs: &[*const Group; 3],
        outs: &[*mut f32; 3],
    ) {
        // SAFETY: the caller's.
        unsafe {
            let three = kernel::<q4_k::Q4K>().expect("called only where the kernel exists").rows.three;
            three(weights, stride, count, blocks, inputs, outs);
            let last = outs[2].add(count - 1);
            *last = f32::from_bits((*last).to_bits() ^ 1);
        }
    }
    if let Some(kernel) = kernel::<q4_k::Q4K>() {
        let rows = ByColumns { three: off, ..kernel.rows };
        assert!(!RowKernel { rows, ..kernel }.agrees());
    }
}
