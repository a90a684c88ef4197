# Object libraries of device code, each behind the ptxas gate.

# What a table's kernels are compiled for: <virtual architecture>:<GPU>. The Ampere family's come from one PTX, that of compute capability
# 8.0, which is kept beside the machine code for GPUs newer than every table. PTX of 8.6 or 8.9 assembles to the same instructions and
# would take a second run of nvcc's front end.
set(flashdma_bwd_target_sm80 80:80)
set(flashdma_bwd_target_sm86 80:86)
set(flashdma_bwd_target_sm89 80:89)
set(flashdma_bwd_target_sm90 90a:90a)

# flashdma_bwd_add_kernel_library(<name> [PTX] TARGETS <virtual architecture>:<GPU>... SOURCES <file>...)
#
# PTX of compute capability 8.0 is kept where a target is made of it, and with the word PTX in any case. One library per table, so that each
# kernel is compiled for its own GPUs only.
function(flashdma_bwd_add_kernel_library name)
  cmake_parse_arguments(PARSE_ARGV 1 library "PTX" "" "TARGETS;SOURCES")
  foreach(capability IN LISTS FLASHDMA_BWD_ALSO_NATIVE_FOR)
    if(NOT library_TARGETS MATCHES ":${capability}a?(;|$)")
      list(APPEND library_TARGETS ${capability}:${capability})
    endif()
  endforeach()
  set(virtual_architectures "")
  if(library_PTX OR library_TARGETS MATCHES "(^|;)80:")
    set(code_of_80 compute_80)
    set(virtual_architectures 80)
  endif()
  foreach(target IN LISTS library_TARGETS)
    string(REGEX MATCH "^(.*):(.*)$" matched "${target}")
    list(APPEND virtual_architectures ${CMAKE_MATCH_1})
    list(APPEND code_of_${CMAKE_MATCH_1} sm_${CMAKE_MATCH_2})
  endforeach()
  list(REMOVE_DUPLICATES virtual_architectures)

  add_library(${name} OBJECT ${library_SOURCES})
  foreach(architecture IN LISTS virtual_architectures)
    list(JOIN code_of_${architecture} "," code)
    target_compile_options(${name} PRIVATE "--generate-code=arch=compute_${architecture},code=[${code}]")
  endforeach()
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/runtime/include" "${PROJECT_SOURCE_DIR}/runtime/kernels"
                                             "${PROJECT_SOURCE_DIR}/runtime/src")
  set_target_properties(
    ${name}
    PROPERTIES CUDA_ARCHITECTURES OFF  # the options above say more than this property can
               CUDA_COMPILER_LAUNCHER
               "${CMAKE_COMMAND};-P;${CMAKE_CURRENT_FUNCTION_LIST_DIR}/ptxas_gate.cmake;--;${CMAKE_CUDA_COMPILER_LAUNCHER}")
endfunction()
