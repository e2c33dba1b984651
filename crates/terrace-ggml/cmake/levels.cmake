# One program for all processors of x86-64: ggml's CPU backend is compiled once for each level of instructions, and every
# function of it that others call becomes a jump to that of the best level which the processor has. build_time.cmake
# includes this where TERRACE_LEVELS is set (scripts/dist); docs/decisions/0124-one-binary.md says why it is done so.
#
# Each level becomes one object, in which all names but those of these functions are its own: so no level uses
# an inlined function of the C++ library that another one compiled. Needs GNU ld and objcopy.

# The names say what doctor and TERRACE_VARIANT call them. Ascending: a processor is given the last one that it has.
set(TERRACE_LEVELS x86-64-v2 x86-64-v3 x86-64-v3-vnni x86-64-v4 x86-64-v4-vnni)
set(TERRACE_LEVEL_x86-64-v2 SSE42)
set(TERRACE_LEVEL_x86-64-v3 ${TERRACE_LEVEL_x86-64-v2} AVX F16C FMA BMI2 AVX2)
set(TERRACE_LEVEL_x86-64-v3-vnni ${TERRACE_LEVEL_x86-64-v3} AVX_VNNI)
set(TERRACE_LEVEL_x86-64-v4 ${TERRACE_LEVEL_x86-64-v3} AVX512)
set(TERRACE_LEVEL_x86-64-v4-vnni ${TERRACE_LEVEL_x86-64-v4} AVX512_VBMI AVX512_VNNI)

# What ggml compiles with for each of its switches (ggml/src/ggml-cpu/CMakeLists.txt), beside -march.
set(TERRACE_FLAGS_AVX_VNNI -mavxvnni)
set(TERRACE_FLAGS_AVX512_VBMI -mavx512vbmi)
set(TERRACE_FLAGS_AVX512_VNNI -mavx512vnni)

set(TERRACE_LEVELS_DIR "${CMAKE_CURRENT_LIST_DIR}/levels")

# terrace_level(LEVEL OBJECT): compiles the backend's sources for a level, and joins them into OBJECT.
function(terrace_level level object)
    get_target_property(dir ggml-cpu SOURCE_DIR)
    get_target_property(sources ggml-cpu TERRACE_SOURCES)
    string(REGEX REPLACE "-vnni$" "" march "${level}")
    set(flags "-march=${march}")
    set(definitions "")
    foreach(feature IN LISTS TERRACE_LEVEL_${level})
        list(APPEND flags ${TERRACE_FLAGS_${feature}})
        list(APPEND definitions "GGML_${feature}")
    endforeach()
    set(name "ggml-cpu-${level}")
    add_library(${name} OBJECT ${sources})
    foreach(property IN ITEMS COMPILE_DEFINITIONS INCLUDE_DIRECTORIES COMPILE_FEATURES COMPILE_OPTIONS
        C_STANDARD C_STANDARD_REQUIRED CXX_STANDARD CXX_STANDARD_REQUIRED)
        get_target_property(value ggml-cpu ${property})
        if(value)
            set_target_properties(${name} PROPERTIES ${property} "${value}")
        endif()
    endforeach()
    get_property(of_folder DIRECTORY "${dir}" PROPERTY COMPILE_DEFINITIONS)
    list(APPEND definitions ${of_folder})
    get_target_property(libraries ggml-cpu LINK_LIBRARIES)
    target_link_libraries(${name} PRIVATE ${libraries})
    # The last -march of a command line counts.
    target_compile_options(${name} PRIVATE ${flags})
    # Objcopy leaves such symbols global.
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-gnu-unique>)
    target_compile_definitions(${name} PRIVATE ${definitions})
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    add_custom_command(OUTPUT "${object}"
        COMMAND sh "${TERRACE_LEVELS_DIR}/join" "${CMAKE_LINKER}" "${CMAKE_OBJCOPY}" "${CMAKE_OBJDUMP}"
            "${CMAKE_NM}" "${level}" "${object}" "$<TARGET_OBJECTS:${name}>"
        COMMAND_EXPAND_LISTS VERBATIM
        DEPENDS ${name} "$<TARGET_OBJECTS:${name}>" "${TERRACE_LEVELS_DIR}/join")
endfunction()

# terrace_levels(): puts all levels, and what chooses among them, in place of the backend's sources.
function(terrace_levels)
    get_target_property(dir ggml-cpu SOURCE_DIR)
    get_target_property(sources ggml-cpu SOURCES)
    list(TRANSFORM sources PREPEND "${dir}/" REGEX "^[^/]")
    set_target_properties(ggml-cpu PROPERTIES TERRACE_SOURCES "${sources}")

    set(folder "${CMAKE_BINARY_DIR}/terrace-levels")
    file(MAKE_DIRECTORY "${folder}")
    set(objects "")
    foreach(level IN LISTS TERRACE_LEVELS)
        terrace_level("${level}" "${folder}/${level}.o")
        list(APPEND objects "${folder}/${level}.o")
    endforeach()
    # Any x86-64 runs what chooses.
    set(choose "${folder}/choose.o")
    add_custom_command(OUTPUT "${choose}"
        COMMAND sh "${TERRACE_LEVELS_DIR}/list" "${CMAKE_NM}" "${folder}/functions.h" ${objects}
        COMMAND "${CMAKE_C_COMPILER}" -std=c11 -O2 -fPIC -Wall -Wextra -Werror -march=x86-64
            -c -o "${choose}" "-I${folder}" "${TERRACE_LEVELS_DIR}/choose.c"
        VERBATIM
        DEPENDS ${objects} "${TERRACE_LEVELS_DIR}/list" "${TERRACE_LEVELS_DIR}/choose.c")
    list(APPEND objects "${choose}")
    add_custom_target(terrace-levels DEPENDS ${objects})

    set_target_properties(ggml-cpu PROPERTIES SOURCES "${objects}" LINKER_LANGUAGE CXX)
    set_source_files_properties(${objects} TARGET_DIRECTORY ggml-cpu PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    add_dependencies(ggml-cpu terrace-levels)
endfunction()
