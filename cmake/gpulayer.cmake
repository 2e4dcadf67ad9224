# Warnings, sanitizers and the two ways to add a room or its tests.

add_library(gpulayer_flags INTERFACE)
target_compile_options(gpulayer_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
  -Wno-sign-conversion -Wnon-virtual-dtor -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  target_compile_options(gpulayer_flags INTERFACE -Wthread-safety -Werror=thread-safety)
endif()
if(GPULAYER_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(GPULAYER_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
endif()

# gpulayer_room(base SOURCES a.cc b.cc LIBS x y): a static library gpulayer_base that sees src/ and include/.
function(gpulayer_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_library(gpulayer_${name} STATIC ${ARG_SOURCES})
  target_include_directories(gpulayer_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(gpulayer_${name} PUBLIC ${ARG_LIBS} PRIVATE gpulayer_flags)
endfunction()

# gpulayer_test(base SOURCES a_test.cc LIBS gpulayer_base [LABELS fast] [TIMEOUT 60]): one program, each of its
# cases a ctest entry. Labels: fast (scripts/check.sh runs it), slow (scripts/test.sh too).
function(gpulayer_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  add_executable(gpulayer_${name}_test ${ARG_SOURCES})
  target_include_directories(gpulayer_${name}_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(gpulayer_${name}_test PRIVATE ${ARG_LIBS} GTest::gtest GTest::gmock GTest::gtest_main
    gpulayer_flags)
  if(NOT ARG_LABELS)
    set(ARG_LABELS fast)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  include(GoogleTest)
  gtest_discover_tests(gpulayer_${name}_test TEST_PREFIX "${name}." NO_PRETTY_VALUES DISCOVERY_MODE PRE_TEST
    PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()
