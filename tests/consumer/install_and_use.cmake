# Installs the library into a scratch prefix and uses it from there, with find_package or with pkg-config.
#
#     cmake -DMODE=find_package|pkg_config -DBUILD=<build folder> -DCONFIG=<configuration> -DSCRATCH=<folder> -DGENERATOR=<generator>
#           -DCC=<C compiler> -DCXX=<C++ compiler> -DFLAGS=<of both compilers> -DCUDA_ROOT=<toolkit> -DPKG_CONFIG=<program>
#           -P install_and_use.cmake
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE "${SCRATCH}")
set(prefix "${SCRATCH}/prefix")
run("${CMAKE_COMMAND}" --install "${BUILD}" --config "${CONFIG}" --prefix "${prefix}")
file(GLOB_RECURSE shared_libraries "${prefix}/*.so")
if(shared_libraries)
  list(GET shared_libraries 0 library)
  cmake_path(GET library PARENT_PATH library_folder)
  set(ENV{LD_LIBRARY_PATH} "${library_folder}:$ENV{LD_LIBRARY_PATH}")
endif()

if(MODE STREQUAL "find_package")
  run("${CMAKE_COMMAND}" -G "${GENERATOR}" -S "${CMAKE_CURRENT_LIST_DIR}/find_package" -B "${SCRATCH}/build"
      "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_BUILD_TYPE=${CONFIG}" "-DCMAKE_C_COMPILER=${CC}" "-DCMAKE_CXX_COMPILER=${CXX}"
      "-DCMAKE_C_FLAGS=${FLAGS}" "-DCMAKE_CXX_FLAGS=${FLAGS}" "-DCUDAToolkit_ROOT=${CUDA_ROOT}")
  run("${CMAKE_COMMAND}" --build "${SCRATCH}/build" --config "${CONFIG}")
  file(GLOB_RECURSE programs "${SCRATCH}/build/consumer_c" "${SCRATCH}/build/consumer_cpp" "${SCRATCH}/build/*/consumer_c"
       "${SCRATCH}/build/*/consumer_cpp")
elseif(MODE STREQUAL "pkg_config")
  file(GLOB_RECURSE description "${prefix}/*/flashdma_bwd.pc")
  cmake_path(GET description PARENT_PATH description_folder)
  set(ENV{PKG_CONFIG_PATH} "${description_folder}")
  execute_process(COMMAND "${PKG_CONFIG}" --cflags --libs flashdma_bwd OUTPUT_VARIABLE options COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(options UNIX_COMMAND "${options}")
  separate_arguments(flags UNIX_COMMAND "${FLAGS}")
  run("${CC}" -std=c11 ${flags} "${CMAKE_CURRENT_LIST_DIR}/c_abi.c" -o "${SCRATCH}/consumer_c" ${options})
  run("${CXX}" -std=c++20 ${flags} "${CMAKE_CURRENT_LIST_DIR}/consumer.cpp" -o "${SCRATCH}/consumer_cpp" ${options})
  set(programs "${SCRATCH}/consumer_c" "${SCRATCH}/consumer_cpp")
else()
  message(FATAL_ERROR "MODE must be find_package or pkg_config")
endif()

list(REMOVE_DUPLICATES programs)
list(LENGTH programs count)
if(NOT count EQUAL 2)
  message(FATAL_ERROR "two programs were to be built, these are there: ${programs}")
endif()
foreach(program IN LISTS programs)
  run("${program}")
endforeach()
