# Runs one device compile and fails it when ptxas reports what no shipped kernel may have: a register spill, a stack frame
# in local memory, a serialised wgmma, or an ignored setmaxnreg.
#
#     cmake -P ptxas_gate.cmake -- <compiler command>
#
# The build puts this in front of nvcc (CUDA_COMPILER_LAUNCHER). ptxas's report is not shown when all is well; it is condensed to
# one line a kernel in <object>.resources:
#
#     <kernel> <sm> registers=<n> stack=<bytes> spill_stores=<bytes> spill_loads=<bytes> shared=<static bytes>
cmake_minimum_required(VERSION 3.25)

# The command: everything behind the first "--".
set(command "")
set(seen_separator OFF)
set(object "")
set(source "")
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE 1 ${last})
  set(argument "${CMAKE_ARGV${i}}")
  if(NOT seen_separator)
    if(argument STREQUAL "--")
      set(seen_separator ON)
    endif()
    continue()
  endif()
  if(previous STREQUAL "-o")
    set(object "${argument}")
  elseif(argument MATCHES "\\.cu$")
    set(source "${argument}")
  endif()
  set(previous "${argument}")
  string(REPLACE ";" "\\;" argument "${argument}")
  list(APPEND command "${argument}")
endforeach()
if(NOT command)
  message(FATAL_ERROR "usage: cmake -P ptxas_gate.cmake -- <compiler command>")
endif()

execute_process(COMMAND ${command} -Xptxas=-v RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE errors)
set(report "${output}${errors}")

if(NOT result EQUAL 0)
  message("${report}")
  message(FATAL_ERROR "the compiler failed (${result}) on ${source}")
endif()

# A list of the report's lines; unbalanced brackets and semicolons would break the list.
string(REGEX REPLACE "[][;]" " " lines "${report}")
string(REGEX REPLACE "\r?\n" ";" lines "${lines}")

set(faults "")
set(resources "")
set(function "")
foreach(line IN LISTS lines)
  if(line MATCHES "\\(C7508\\)|setmaxnreg.*ignored|ignored.*setmaxnreg")
    list(APPEND faults "setmaxnreg is ignored: ${line}")
  elseif(line MATCHES "\\(C751[0-9]\\)|wgmma.*serialized")
    list(APPEND faults "wgmma is serialised: ${line}")
  elseif(line MATCHES "Compiling entry function '([^']*)' for '([^']*)'")
    set(function "${CMAKE_MATCH_1}")
    set(target "${CMAKE_MATCH_2}")
    if(function MATCHES "bwd_sm[0-9]+_d[0-9]+_[a-z0-9_]+")
      set(function "${CMAKE_MATCH_0}")  # the canonical name within the mangled one
    endif()
  elseif(line MATCHES "([0-9]+) bytes stack frame, ([0-9]+) bytes spill stores, ([0-9]+) bytes spill loads")
    set(stack "${CMAKE_MATCH_1}")
    set(stores "${CMAKE_MATCH_2}")
    set(loads "${CMAKE_MATCH_3}")
    if(NOT stores EQUAL 0 OR NOT loads EQUAL 0)
      list(APPEND faults "${function} (${target}): spills ${stores} bytes of stores and ${loads} bytes of loads")
    elseif(NOT stack EQUAL 0)
      list(APPEND faults "${function} (${target}): a stack frame of ${stack} bytes in local memory")
    endif()
  elseif(line MATCHES "Used ([0-9]+) registers")
    set(registers "${CMAKE_MATCH_1}")
    set(shared 0)
    if(line MATCHES "([0-9]+) bytes smem")
      set(shared "${CMAKE_MATCH_1}")
    endif()
    string(APPEND resources "${function} ${target} registers=${registers} stack=${stack} spill_stores=${stores} "
                            "spill_loads=${loads} shared=${shared}\n")
  endif()
endforeach()

if(faults)
  if(EXISTS "${object}")
    file(REMOVE "${object}")
  endif()
  string(APPEND text "ptxas gate: ${source} is refused\n")
  foreach(fault IN LISTS faults)
    string(APPEND text "  ${fault}\n")
  endforeach()
  if(EXISTS "${source}")
    file(STRINGS "${source}" rows REGEX "configs/tables/[^ ]+:[0-9]+")
    foreach(row IN LISTS rows)
      string(REGEX REPLACE "^[ /*]+" "" row "${row}")
      string(APPEND text "  from ${row}\n")
    endforeach()
  endif()
  string(APPEND text "  A configuration that does not fit is changed in its table, never excused: use a smaller tile, more warps or fewer\n"
                     "  stages in the row, then run `flashdma-gen generate`. What ptxas said:\n${report}")
  message("${text}")
  message(FATAL_ERROR "a kernel does not fit its registers")
endif()

# What is not ptxas's report, warnings above all, is passed on.
string(REGEX REPLACE "ptxas info[^\n]*\n|[ ]+[0-9]+ bytes stack frame[^\n]*\n" "" remainder "${report}")
string(STRIP "${remainder}" remainder)
if(remainder)
  message("${remainder}")
endif()
if(object)
  file(WRITE "${object}.resources" "${resources}")
endif()
