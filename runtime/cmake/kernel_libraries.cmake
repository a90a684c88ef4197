# Object libraries of device code, each behind the ptxas gate.
#
# CUDA_ARCHITECTURES is a property of a target: one library per table, so that each kernel is compiled for its own GPUs only.

# What a table's kernels are compiled for: machine code, and PTX for GPUs newer than every table.
set(flashdma_bwd_targets_sm80 80-real 80-virtual)
set(flashdma_bwd_targets_sm86 86-real 80-virtual)
set(flashdma_bwd_targets_sm89 89-real 80-virtual)
set(flashdma_bwd_targets_sm90 90a-real)

# flashdma_bwd_add_kernel_library(<name> TARGETS <CUDA_ARCHITECTURES entry>... SOURCES <file>...)
function(flashdma_bwd_add_kernel_library name)
  cmake_parse_arguments(PARSE_ARGV 1 library "" "" "TARGETS;SOURCES")
  foreach(capability IN LISTS FLASHDMA_BWD_ALSO_NATIVE_FOR)
    if(NOT library_TARGETS MATCHES "(^|;)${capability}(a?-real)?(;|$)")
      list(APPEND library_TARGETS ${capability}-real)
    endif()
  endforeach()
  add_library(${name} OBJECT ${library_SOURCES})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/runtime/include" "${PROJECT_SOURCE_DIR}/runtime/kernels"
                                             "${PROJECT_SOURCE_DIR}/runtime/src")
  set_target_properties(
    ${name}
    PROPERTIES CUDA_ARCHITECTURES "${library_TARGETS}"
               CUDA_COMPILER_LAUNCHER
               "${CMAKE_COMMAND};-P;${CMAKE_CURRENT_FUNCTION_LIST_DIR}/ptxas_gate.cmake;--;${CMAKE_CUDA_COMPILER_LAUNCHER}")
endfunction()
