# What `cmake --install` lays down: the programs, the client library, its headers and the package for find_package.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gpulayer)

foreach(program gpulayer_program gpulayer-server gpulayer-worker gpulayer-exec)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
install(TARGETS gpulayer_shared EXPORT gpulayerTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/gpulayer DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT gpulayerTargets NAMESPACE gpulayer:: DESTINATION ${package_dir})
configure_package_config_file(cmake/gpulayerConfig.cmake.in ${CMAKE_BINARY_DIR}/gpulayerConfig.cmake
  INSTALL_DESTINATION ${package_dir})
# Source compatible within a major version, but below 1.0 each minor one is its own.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/gpulayerConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/gpulayerConfig.cmake ${CMAKE_BINARY_DIR}/gpulayerConfigVersion.cmake
  DESTINATION ${package_dir})
