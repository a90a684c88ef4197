# Installs the library, its headers, the files that find_package(flashdma_bwd) reads, and the pkg-config file.
include(CMakePackageConfigHelpers)
set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/flashdma_bwd")
set(written "${PROJECT_BINARY_DIR}/package")

install(TARGETS flashdma_bwd EXPORT flashdma_bwd-targets)
install(FILES runtime/include/flashdma_bwd/flashdma_bwd.h runtime/include/flashdma_bwd/flashdma_bwd.hpp
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/flashdma_bwd")
install(EXPORT flashdma_bwd-targets NAMESPACE flashdma_bwd:: DESTINATION "${package_folder}")
configure_package_config_file(runtime/cmake/flashdma_bwd-config.cmake.in "${written}/flashdma_bwd-config.cmake"
                              INSTALL_DESTINATION "${package_folder}")
write_basic_package_version_file("${written}/flashdma_bwd-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${written}/flashdma_bwd-config.cmake" "${written}/flashdma_bwd-config-version.cmake" DESTINATION "${package_folder}")

# The pkg-config file finds its prefix from where it stands, so that the installed tree can be moved. pkg-config has no notion of a library that is
# only static: what a static one needs stands beside it.
set(pc_folder "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
file(RELATIVE_PATH pc_prefix "/${pc_folder}" "/")
string(REGEX REPLACE "/$" "" pc_prefix "${pc_prefix}")
cmake_path(APPEND pc_libdir "\${prefix}" "${CMAKE_INSTALL_LIBDIR}")
cmake_path(APPEND pc_includedir "\${prefix}" "${CMAKE_INSTALL_INCLUDEDIR}")
if(BUILD_SHARED_LIBS)
  set(pc_cflags " -DFLASHDMA_BWD_SHARED")
  set(pc_libs "")
else()
  set(pc_cflags "")
  get_target_property(cudart CUDA::cudart_static IMPORTED_LOCATION)
  set(pc_libs " ${cudart} -lstdc++ -lm -lpthread -ldl -lrt")
endif()
configure_file(runtime/cmake/flashdma_bwd.pc.in "${written}/flashdma_bwd.pc" @ONLY)
install(FILES "${written}/flashdma_bwd.pc" DESTINATION "${pc_folder}")
