# Compiles SOURCE to OBJECT through the gate, which must refuse it: a failed command whose output matches EXPECTED and names KERNEL in what the gate itself says, and neither
# an object nor resources left behind.
#
#     cmake -DGATE=<ptxas_gate.cmake> -DSOURCE=... -DOBJECT=... -DKERNEL=... -DEXPECTED=<regular expression> -P refused_compile_test.cmake -- <compiler command>
set(command "")
set(behind OFF)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE 1 ${last})
  if(behind)
    list(APPEND command "${CMAKE_ARGV${i}}")
  elseif("${CMAKE_ARGV${i}}" STREQUAL "--")
    set(behind ON)
  endif()
endforeach()
file(REMOVE "${OBJECT}" "${OBJECT}.resources")
execute_process(COMMAND "${CMAKE_COMMAND}" -P "${GATE}" -- ${command} "${SOURCE}" -o "${OBJECT}" RESULT_VARIABLE result
                OUTPUT_VARIABLE output ERROR_VARIABLE output)
# Of the gate's own words: behind them stand ptxas's, with the names of all kernels.
string(REGEX REPLACE "What ptxas said:.*" "" verdict "${output}")
if(result EQUAL 0)
  message(FATAL_ERROR "the gate passed what it must refuse:\n${output}")
endif()
foreach(wanted "is refused" "${EXPECTED}" "${KERNEL}")
  if(NOT verdict MATCHES "${wanted}")
    message(FATAL_ERROR "the gate's words do not match ${wanted}:\n${output}")
  endif()
endforeach()
foreach(file "${OBJECT}" "${OBJECT}.resources")
  if(EXISTS "${file}")
    message(FATAL_ERROR "a refused compile left ${file}")
  endif()
endforeach()
