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
        input: *const Group,
        out: *mut f32,
    ) {
        // SAFETY: the caller's.
        unsafe {
            (q4_k().expect("called only where the kernel exists").rows)(
                weights, stride, count, blocks, input, out,
            );
            *out.add(count - 1) = f32::from_bits((*out.add(count - 1)).to_bits() ^ 1);
        }
    }
    if let Some(kernel) = q4_k() {
        assert!(!RowKernel { rows: off, ..kernel }.agrees());
    }
}
