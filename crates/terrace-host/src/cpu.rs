//! The processor.

pub use terrace_platform::processor::{largest_cache, name as model};

/// Returns the number of cores that this process may compute on.
pub fn cores() -> u32 {
    u32::try_from(terrace_ggml::cpu::default_threads()).unwrap_or(u32::MAX).max(1)
}

/// Returns the instruction sets that kernels may use, by the names that compilers give them.
#[cfg(target_arch = "x86_64")]
pub fn simd() -> Vec<String> {
    let all = [
        ("avx", is_x86_feature_detected!("avx")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("f16c", is_x86_feature_detected!("f16c")),
        ("fma", is_x86_feature_detected!("fma")),
        ("avxvnni", is_x86_feature_detected!("avxvnni")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512vbmi", is_x86_feature_detected!("avx512vbmi")),
        ("avx512vnni", is_x86_feature_detected!("avx512vnni")),
        ("avx512bf16", is_x86_feature_detected!("avx512bf16")),
    ];
    all.iter().filter(|(_, there)| *there).map(|(name, _)| (*name).to_owned()).collect()
}

/// Returns the instruction sets that kernels may use, by the names that compilers give them.
#[cfg(target_arch = "aarch64")]
pub fn simd() -> Vec<String> {
    use std::arch::is_aarch64_feature_detected;
    let all = [
        ("neon", is_aarch64_feature_detected!("neon")),
        ("dotprod", is_aarch64_feature_detected!("dotprod")),
        ("i8mm", is_aarch64_feature_detected!("i8mm")),
        ("sve", is_aarch64_feature_detected!("sve")),
    ];
    all.iter().filter(|(_, there)| *there).map(|(name, _)| (*name).to_owned()).collect()
}

/// Returns the instruction sets that kernels may use: none is known for this architecture.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn simd() -> Vec<String> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_processor_has_cores_and_a_cache_of_sane_size() {
        assert!(cores() >= 1);
        assert!(largest_cache() < 1 << 32);
    }
}
