//! The number of threads to use, and the instruction sets that kernels were compiled for.

use llama_cpp_sys_2 as sys;

/// Default number of compute threads: the CPUs that the process may run on. Physical cores are not
/// distinguished.
pub fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The level of x86-64 whose kernels of ggml compute, where all levels are in the program (`scripts/dist`); `None` where
/// they were compiled for one kind of processor.
pub fn level() -> Option<&'static str> {
    #[cfg(levels)]
    {
        unsafe extern "C" {
            fn terrace_cpu_level() -> *const std::ffi::c_char;
        }
        // SAFETY: cmake/levels/choose.c has chosen one of its own constants before any other code ran.
        unsafe { std::ffi::CStr::from_ptr(terrace_cpu_level()) }.to_str().ok()
    }
    #[cfg(not(levels))]
    None
}

/// Instruction sets that ggml's kernels were compiled for, by their compiler names.
pub fn built_features() -> Vec<&'static str> {
    // SAFETY: functions without arguments that say what they were compiled with.
    let all = unsafe {
        [
            ("avx", sys::ggml_cpu_has_avx()),
            ("avx2", sys::ggml_cpu_has_avx2()),
            ("f16c", sys::ggml_cpu_has_f16c()),
            ("fma", sys::ggml_cpu_has_fma()),
            ("avxvnni", sys::ggml_cpu_has_avx_vnni()),
            ("avx512f", sys::ggml_cpu_has_avx512()),
            ("avx512vbmi", sys::ggml_cpu_has_avx512_vbmi()),
            ("avx512vnni", sys::ggml_cpu_has_avx512_vnni()),
            ("avx512bf16", sys::ggml_cpu_has_avx512_bf16()),
            ("neon", sys::ggml_cpu_has_neon()),
            ("dotprod", sys::ggml_cpu_has_dotprod()),
            ("i8mm", sys::ggml_cpu_has_matmul_int8()),
            ("sve", sys::ggml_cpu_has_sve()),
        ]
    };
    all.into_iter().filter(|(_, has)| *has != 0).map(|(name, _)| name).collect()
}
