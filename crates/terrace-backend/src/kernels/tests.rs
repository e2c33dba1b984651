//! Compares kernels with ggml's own, bit by bit.

use super::*;

fn machine_has_them() -> bool {
    #[cfg(target_arch = "x86_64")]
    return has_instructions();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

#[test]
fn kernels_round_as_ggml_does() {
    for (ty, kernel) in [(DataType::Q4_K, q4_k()), (DataType::Q6_K, q6_k())] {
        assert_eq!(kernel.is_some(), machine_has_them());
        if let Some(kernel) = kernel {
            assert!(kernel.agrees(), "{ty:?}");
            assert!(RowKernel::of(ty).is_some());
        }
    }
    assert!(RowKernel::of(DataType::F32).is_none());
}

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
            let three = q4_k().expect("called only where the kernel exists").rows.three;
            three(weights, stride, count, blocks, inputs, outs);
            let last = outs[2].add(count - 1);
            *last = f32::from_bits((*last).to_bits() ^ 1);
        }
    }
    if let Some(kernel) = q4_k() {
        let rows = ByColumns { three: off, ..kernel.rows };
        assert!(!RowKernel { rows, ..kernel }.agrees());
    }
}
