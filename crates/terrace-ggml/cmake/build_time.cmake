# Shortens the build of llama.cpp. CMake includes this after each `project()`: CMAKE_PROJECT_INCLUDE
# in .cargo/config.toml, which llama-cpp-sys-2 hands on. Without it, or with a CMake older than 3.19,
# the build takes longer and the result is as fast.
#
# Most of the time goes into libllama: headers of the C++ library, and optimising code that runs once
# per load or per graph (builders of 130 models' graphs, loading, arguments). The sources listed here,
# and all of ggml, keep CMake's -O3. libmtmd (images) has 45 small files of builders, which become a few.

if(NOT PROJECT_NAME STREQUAL "llama.cpp" OR CMAKE_VERSION VERSION_LESS 3.19)
    return()
endif()

# What of libllama works per token, per byte of text, or per cell of the KV cache.
set(TERRACE_HOT_SOURCES
    llama-batch.cpp
    llama-context.cpp
    llama-grammar.cpp
    llama-graph.cpp
    llama-kv-cache.cpp
    llama-kv-cache-dsa.cpp
    llama-kv-cache-dsa-iswa.cpp
    llama-kv-cache-dsv4.cpp
    llama-kv-cache-iswa.cpp
    llama-kv-cache-msa.cpp
    llama-memory-recurrent.cpp
    llama-sampler.cpp
    llama-vocab.cpp
    unicode.cpp)

# What of llama.cpp's common works per token or per byte of a request: rendering prompts, parsing answers, sampling.
set(TERRACE_HOT_COMMON
    chat-peg-parser.cpp
    json-schema-to-grammar.cpp
    json.cpp
    peg-parser.cpp
    reasoning-budget.cpp
    sampling.cpp
    trie.cpp
    unicode.cpp
    jinja/lexer.cpp
    jinja/parser.cpp
    jinja/runtime.cpp
    jinja/string.cpp
    jinja/value.cpp)

# Arguments, downloads and consoles of llama.cpp's own programs, which nothing that Terrace links refers to.
set(TERRACE_UNUSED_COMMON
    arg.cpp
    console.cpp
    debug.cpp
    download.cpp
    hf-cache.cpp
    imatrix-loader.cpp
    llguidance.cpp
    preset.cpp)

# Video would be decoded by programs that mtmd starts; Terrace reads images only.
set(MTMD_VIDEO OFF CACHE BOOL "" FORCE)

# Builders of graphs, once per image, in units of 16 files. What works per pixel keeps -O3.
function(terrace_shorten_mtmd)
    get_target_property(dir mtmd SOURCE_DIR)
    get_target_property(others mtmd SOURCES)
    list(FILTER others EXCLUDE REGEX "models/.*\\.cpp$")
    list(TRANSFORM others PREPEND "${dir}/")
    target_compile_options(mtmd PRIVATE -O1)
    set_target_properties(mtmd PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
    set_source_files_properties(${others} TARGET_DIRECTORY mtmd PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    set_source_files_properties("${dir}/mtmd-image.cpp" TARGET_DIRECTORY mtmd PROPERTIES COMPILE_OPTIONS -O3)
endfunction()

# Parsers of 20 formats of tool calls, which are made once per template and request. A precompiled header, as below.
function(terrace_shorten_common)
    get_target_property(dir llama-common SOURCE_DIR)
    get_target_property(sources llama-common SOURCES)
    # In other trees than the pinned one (cargo xtask llama), something may.
    if(NOT DEFINED ENV{TERRACE_LLAMA_CPP})
        list(REMOVE_ITEM sources ${TERRACE_UNUSED_COMMON})
        set_target_properties(llama-common PROPERTIES SOURCES "${sources}")
    endif()
    list(TRANSFORM TERRACE_HOT_COMMON PREPEND "${dir}/")
    target_compile_options(llama-common PRIVATE -O1)
    set_source_files_properties(${TERRACE_HOT_COMMON} TARGET_DIRECTORY llama-common
        PROPERTIES COMPILE_OPTIONS -O3 SKIP_PRECOMPILE_HEADERS ON)
    target_precompile_headers(llama-common PRIVATE "${dir}/chat.h" <algorithm> <regex>)
    if(TARGET cpp-httplib)
        target_compile_options(cpp-httplib PRIVATE -O1)
    endif()
endfunction()

function(terrace_shorten)
    list(TRANSFORM TERRACE_HOT_SOURCES PREPEND "${PROJECT_SOURCE_DIR}/src/")
    # The last -O of a command line counts. A precompiled header is for one of them.
    target_compile_options(llama PRIVATE -O1)
    set_source_files_properties(${TERRACE_HOT_SOURCES} TARGET_DIRECTORY llama
        PROPERTIES COMPILE_OPTIONS -O3 SKIP_PRECOMPILE_HEADERS ON)
    target_precompile_headers(llama PRIVATE
        <algorithm> <array> <cmath> <functional> <map> <memory> <regex> <set> <sstream> <string>
        <unordered_map> <vector>)
    if(WIN32)
        # As for Windows 7, whose loader does not read a mapped file ahead, all of it: here it does not ask whether
        # the device wants that.
        set_source_files_properties("${PROJECT_SOURCE_DIR}/src/llama-mmap.cpp" TARGET_DIRECTORY llama
            PROPERTIES COMPILE_OPTIONS "-U_WIN32_WINNT;-D_WIN32_WINNT=0x0601"
            SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
    if(TARGET llama-common AND EXISTS "${PROJECT_SOURCE_DIR}/common/chat.h")
        terrace_shorten_common()
    endif()
    if(TARGET mtmd)
        terrace_shorten_mtmd()
    endif()
endfunction()

# When all targets are there.
cmake_language(DEFER CALL terrace_shorten)

include("${CMAKE_CURRENT_LIST_DIR}/quantising.cmake")
cmake_language(DEFER CALL terrace_round_each)

# A program for all processors of x86-64 (scripts/dist).
if(DEFINED ENV{TERRACE_LEVELS})
    include("${CMAKE_CURRENT_LIST_DIR}/levels.cmake")
    cmake_language(DEFER CALL terrace_levels)
endif()

# The level of ARM that ggml's kernels are for (scripts/cross): llama-cpp-sys-2 asks for armv8-a whatever is wanted.
if(DEFINED ENV{TERRACE_ARM_ARCH})
    set(GGML_CPU_ARM_ARCH "$ENV{TERRACE_ARM_ARCH}" CACHE STRING "" FORCE)
endif()
