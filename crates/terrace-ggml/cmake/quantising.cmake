# Quantising writes the same bytes on all systems and processors: products and sums are rounded one by one. Compilers
# fuse them where the processor can (GCC, on ARM and for AVX2), and then a block may get another scale.
# build_time.cmake includes this.
function(terrace_round_each)
    if(TARGET ggml-base AND CMAKE_C_COMPILER_ID MATCHES "GNU|Clang")
        target_compile_options(ggml-base PRIVATE -ffp-contract=off)
    endif()
endfunction()
