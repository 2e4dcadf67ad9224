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
# Not at the top of the build tree: with its bin/ in PATH find_package would look there, and it is whole only where it is
# installed.
set(package_files ${CMAKE_BINARY_DIR}/package)
file(REMOVE ${CMAKE_BINARY_DIR}/gpulayerConfig.cmake ${CMAKE_BINARY_DIR}/gpulayerConfigVersion.cmake)  # where it was once
configure_package_config_file(cmake/gpulayerConfig.cmake.in ${package_files}/gpulayerConfig.cmake
  INSTALL_DESTINATION ${package_dir})
# Source compatible within a major version, but below 1.0 each minor one is its own.
write_basic_package_version_file(${package_files}/gpulayerConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${package_files}/gpulayerConfig.cmake ${package_files}/gpulayerConfigVersion.cmake
  DESTINATION ${package_dir})
# What users need: all that is installed, and no tests.
add_custom_target(programs)
foreach(target gpulayer_program gpulayer-server gpulayer-worker gpulayer-exec gpulayer_shared)
  if(TARGET ${target})
    add_dependencies(programs ${target})
  endif()
endforeach()
